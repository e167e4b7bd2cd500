"""Limits of eta, fixed points and the best constant eta, computed before anything is learned.

Everything spectral follows from one fact. In the coordinates U = (1 + eta) V, BSRS is value iteration relaxed by
omega = 1 + eta. Near the fixed point an error along the eigenvalue lam of the optimal policy's chain is multiplied
by 1 - omega * mu in every step, with mu = 1 - gamma * lam.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigs

from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.tabular.adaptive import Complexes, largest_relaxation
from bsrs.tabular.iterate import solve_many
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma
from bsrs.tabular.operators import state_value
from bsrs.tabular.solve import solve

# Up to this size of a communicating class all eigenvalues are computed; beyond it, the extreme ones.
DENSE_LIMIT = 1000
# Numbers in the Q tables that are iterated side by side.
MOST_ENTRIES = 2_000_000


def proven_range(gamma: float) -> tuple[float, float]:
    """Return the open interval of eta for which the paper proves a contraction."""
    check_gamma(gamma)
    return -1.0, (1.0 - gamma) / (1.0 + gamma)


def contraction_factor(eta: npt.ArrayLike, gamma: float) -> float:
    """Return |eta| + gamma |1 + eta|, an upper bound on the contraction factor in the sup-norm of Q."""
    scale = np.asarray(eta, dtype=np.float64)
    return float(np.abs(scale).max() + check_gamma(gamma) * np.abs(1.0 + scale).max())


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The fixed point of BSRS: Q_inf, V_inf and the potential Phi_inf."""

    q: Floats
    value: Floats
    potential: Floats


def fixed_point(optimal_q: Floats, eta: npt.ArrayLike, *, temperature: float = 0.0) -> FixedPoint:
    """Compute the fixed point from the unshaped optimum, as in the paper's proof (its statement lacks a factor eta).

    Q_inf = Q_0 - Phi_inf, V_inf = V_0 / (1 + eta) and Phi_inf = eta / (1 + eta) V_0.
    """
    scale = np.asarray(eta, dtype=np.float64)
    optimal_value = state_value(optimal_q, temperature)
    potential = scale / (1.0 + scale) * optimal_value
    return FixedPoint(optimal_q - potential[:, None], optimal_value / (1.0 + scale), potential)


def spectrum(chain: sparse.csr_array) -> Complexes:
    """Return the eigenvalues of a Markov chain: all, or the extreme ones of very large communicating classes.

    A chain is block triangular in its communicating classes, so its eigenvalues are those of the blocks. Taking the
    blocks one by one is exact where a sparse eigensolver on the whole chain is not: the transient states of a
    deterministic grid form a nilpotent part, whose computed eigenvalues scatter far around zero.
    """
    n_classes, label = connected_components(chain, directed=True, connection="strong")
    sizes = np.bincount(label, minlength=n_classes)
    found = [np.unique(chain.diagonal()[sizes[label] == 1]).astype(complex)]
    for number in np.flatnonzero(sizes > 1):
        members = np.flatnonzero(label == number)
        found.append(_block_spectrum(sparse.csr_array(chain[members][:, members])))
    return cast(Complexes, np.concatenate(found))


def _block_spectrum(block: sparse.csr_array) -> Complexes:
    if block.shape[0] <= DENSE_LIMIT:
        return cast(Complexes, np.linalg.eigvals(block.toarray()).astype(complex))
    first = stream(0, "eigensolver start").standard_normal(block.shape[0])
    # The largest magnitudes set the speed, the leftmost ones the stability limit.
    extremes = [eigs(block, k=12, which=which, v0=first, tol=1e-8, return_eigenvectors=False) for which in ("LM", "SR")]
    return cast(Complexes, np.concatenate(extremes))


def spectral_limit(chain: sparse.csr_array, gamma: float) -> float:
    """Return the largest eta for which the iteration is stable near the fixed point: |1 - omega mu| < 1 for all mu."""
    return largest_relaxation(1.0 - check_gamma(gamma) * spectrum(chain)) - 1.0


@dataclass(frozen=True)
class Fastest:
    """The constant eta that needs the fewest iterations from random starts, and the iterations without shaping."""

    eta: float
    steps: float
    plain_steps: float


def fastest_eta(mdp: MDP, gamma: float, *, limit: float, seeds: range = range(20), tol: float = 1e-6) -> Fastest:
    """Return the best constant eta in practice, among fifty values from 0 to the empirical `limit`."""
    etas = np.linspace(0.0, limit, 50)
    steps = count_steps(mdp, gamma, etas, seeds=seeds, tol=tol, max_steps=1_000_000)[0].mean(axis=1)
    best = int(steps.argmin())
    return Fastest(float(etas[best]), float(steps[best]), float(steps[0]))


def optimal_chain(mdp: MDP, gamma: float) -> sparse.csr_array:
    return mdp.chain(solve(mdp, gamma, tol=1e-10).policy)


def random_inits(mdp: MDP, seeds: range) -> Floats:
    """Draw the paper's random initial Q tables, uniform in [0, 1): (K, S, A)."""
    return np.stack([stream(seed, "q init").random(mdp.rewards.shape) for seed in seeds])


def count_steps(
    mdp: MDP, gamma: float, etas: npt.ArrayLike, *, seeds: range, tol: float = 1e-6, max_steps: int = 100_000
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the iterations for each eta from each random start, (E, K), and whether each run converged."""
    init, scales = random_inits(mdp, seeds), np.asarray(etas, dtype=np.float64)
    at_once = max(1, MOST_ENTRIES // init.size)
    batches = [
        solve_many(
            mdp,
            gamma,
            eta=np.repeat(some, len(init)),
            init=np.tile(init, (len(some), 1, 1)),
            tol=tol,
            max_steps=max_steps,
        )
        for some in np.split(scales, range(at_once, len(scales), at_once))
    ]
    counts = np.concatenate([batch.applications for batch in batches])
    converged = np.array([outcome == "converged" for batch in batches for outcome in batch.outcomes])
    return counts.reshape(len(scales), -1), converged.reshape(len(scales), -1)


def empirical_limit(
    mdp: MDP,
    gamma: float,
    *,
    seeds: range = range(20),
    tol: float = 1e-6,
    patience: int = 10,
    precision: float = 1e-3,
) -> float:
    """Return the largest eta, by bisection, for which every random initialisation converges.

    A run that takes `patience` times as long as without shaping counts as not converging. The limit is often below the
    spectral one, because the greedy policy switches far from the fixed point. It is never above it, except for the
    finite patience.
    """

    def slowest(eta: float, max_steps: int) -> int | None:
        steps, converged = count_steps(mdp, gamma, [eta], seeds=seeds, tol=tol, max_steps=max_steps)
        return int(steps.max()) if converged.all() else None

    plain = slowest(0.0, 1_000_000)
    if plain is None:
        raise BadInput(f"value iteration does not reach a residual of {tol:g} at gamma {gamma}; give a larger tol")
    low, high = 0.0, (1.0 + gamma) / (1.0 - gamma)  # above this even the slowest mode, lam = 1, is unstable
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (low, middle) if slowest(middle, patience * plain) is None else (middle, high)
    return low
