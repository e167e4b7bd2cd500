from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given

from bsrs.rng import stream
from bsrs.tabular import MDP, grid_mdp, solve
from bsrs.tabular.adaptive import best_relaxation
from bsrs.tabular.theory import (
    contraction_factor,
    empirical_limit,
    optimal_chain,
    proven_range,
    spectral_limit,
    spectrum,
)
from strategies import gammas, mdps, seeds


def chain_of(eigenvalue: str) -> sparse.csr_array:
    chains = {
        "minus one": [[0.0, 1.0], [1.0, 0.0]],
        "zero": [[0.5, 0.5], [0.5, 0.5]],
        "one": [[1.0, 0.0], [0.0, 1.0]],
        "i": [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]],
    }
    return sparse.csr_array(np.array(chains[eigenvalue], dtype=float))


@given(mdps(), seeds)
def test_spectrum_is_that_of_the_dense_matrix(mdp, seed):
    policy = stream(seed, "policy").integers(mdp.n_actions, size=mdp.n_states)
    chain = mdp.chain(policy)
    characteristic = [np.linalg.det(chain.toarray() - lam * np.eye(mdp.n_states)) for lam in spectrum(chain)]
    np.testing.assert_allclose(characteristic, 0.0, atol=1e-9)
    radius = np.abs(np.linalg.eigvals(chain.toarray())).max()
    assert np.abs(spectrum(chain)).max() == pytest.approx(radius, abs=1e-6)


def test_spectrum_of_a_deterministic_grid_is_exact():
    """A sparse eigensolver on the whole chain scatters the zeros of its nilpotent part; the blocks give 0 and 1."""
    assert set(spectrum(optimal_chain(grid_mdp("12x12"), 0.9))) == {0.0, 1.0}


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_limits_by_eigenvalue(gamma):
    assert spectral_limit(chain_of("minus one"), gamma) == pytest.approx((1 - gamma) / (1 + gamma))
    assert spectral_limit(chain_of("zero"), gamma) == pytest.approx(1.0)
    assert spectral_limit(chain_of("one"), gamma) == pytest.approx((1 + gamma) / (1 - gamma))


@given(mdps(terminating=False), gammas)
def test_the_spectral_limit_is_never_below_the_proven_range(mdp, gamma):
    assert spectral_limit(optimal_chain(mdp, gamma), gamma) >= proven_range(gamma)[1] - 1e-9


def best_eta(chain, gamma):
    """The constant that shrinks errors fastest in the end, and the factor by which it does per step."""
    omega, rate = best_relaxation(1 - gamma * spectrum(chain))
    return omega - 1, rate


@given(mdps(terminating=False), gammas)
def test_best_eta_is_not_beaten_by_its_neighbours(mdp, gamma):
    chain = optimal_chain(mdp, gamma)
    _, rate = best_eta(chain, gamma)
    mu = 1 - gamma * spectrum(chain)
    for eta in np.linspace(-0.9, spectral_limit(chain, gamma), 50):
        assert np.abs(1 - (1 + eta) * mu).max() >= rate - 1e-6


def test_best_eta_by_hand():
    """Eigenvalues 1 and 0 at gamma = 0.8: omega = 2 / (mu_min + mu_max) = 2 / 1.2, and both errors shrink by 2/3."""
    eta, rate = best_eta(chain_of("zero"), 0.8)
    assert eta == pytest.approx(2 / 1.2 - 1, abs=1e-6)
    assert rate == pytest.approx(2 / 3, abs=1e-6)


def test_the_rate_is_the_one_observed():
    mdp, gamma = MDP.garnet(50, 3, 5, seed=2), 0.9
    eta, rate = best_eta(optimal_chain(mdp, gamma), gamma)
    residuals = solve(mdp, gamma, eta=eta, tol=1e-10).residuals
    observed = (residuals[-1] / residuals[-21]) ** (1 / 20)
    assert observed == pytest.approx(rate, abs=0.02)


def test_large_chains_use_the_sparse_eigensolver(monkeypatch):
    chain = optimal_chain(grid_mdp("12x12", slip=0.3), 0.9)
    exact = spectral_limit(chain, 0.9)
    monkeypatch.setattr("bsrs.tabular.theory.DENSE_LIMIT", 50)
    assert spectral_limit(chain, 0.9) == pytest.approx(exact, rel=1e-5)


def test_empirical_limit():
    swap = MDP([[[0.0, 1.0]], [[1.0, 0.0]]], [[1.0], [0.0]])
    assert empirical_limit(swap, 0.8, seeds=range(5)) == pytest.approx(1 / 9, abs=0.02)  # = proven = spectral
    paper = grid_mdp("paper")
    found = empirical_limit(paper, 0.8, seeds=range(10))
    assert 0.4 < found < spectral_limit(optimal_chain(paper, 0.8), 0.8) == 1.0  # switching policies diverge earlier


def test_contraction_factor_of_a_state_dependent_eta():
    assert contraction_factor(np.array([-0.2, 0.1]), 0.5) == pytest.approx(0.2 + 0.5 * 1.1)
