"""The paper's theorems, propositions and remark, put to the test on many random tables."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bsrs.rng import stream
from bsrs.shaping import Shaping
from bsrs.stats import Interval, Verdict, bootstrap, mean
from bsrs.tabular import MDP, shaped_bellman, solve, state_value
from bsrs.tabular.grids import named_mdp
from bsrs.tabular.learning import Transition, action_target, learn
from bsrs.tabular.theory import contraction_factor, count_steps, fixed_point, proven_range
from experiments.claims import Claim

TABLES = {"smoke": 10, "laptop": 50, "paper": 50}
"""Random tables, by scale."""
EXACT = 1e-8


@dataclass(frozen=True)
class Case:
    """A random table with a discount and an eta inside the proven range."""

    mdp: MDP
    gamma: float
    eta: float
    rng: np.random.Generator


def judge_theory(tables: int = TABLES["paper"]) -> list[Claim]:
    """Judge each statement. Exact statements have no interval, but a largest error over the tables."""
    exact = [_contraction(tables), *_fixed_points(tables), _no_static_equivalent(tables), _td0(tables)]
    return [*exact, *_sarsa0(tables), *_fewer_steps()]


def _cases(tables: int) -> Iterator[Case]:
    for number in range(tables):
        rng = stream(number, "theory case")
        gamma = float(rng.uniform(0.1, 0.95))
        low, high = proven_range(gamma)
        eta = float(rng.uniform(low + 0.1, 0.95 * high))
        yield Case(MDP.garnet(int(rng.integers(2, 12)), 3, 2, seed=number), gamma, eta, rng)


def _exact(text: str, error: float, what: str, tables: int) -> Claim:
    shown = f"largest {what} over {tables} random tables: {error:.1e}"
    return Claim(text, shown, "exact", "holds" if error < EXACT else "does not hold")


def _contraction(tables: int) -> Claim:
    excess = 0.0
    for case in _cases(tables):
        one, other = case.rng.standard_normal((2, *case.mdp.rewards.shape))
        moved = [shaped_bellman(case.mdp, case.gamma, q, case.eta) for q in (one, other)]
        factor = contraction_factor(case.eta, case.gamma)
        excess = max(excess, np.abs(moved[0] - moved[1]).max() / np.abs(one - other).max() - factor, factor - 1)
    return _exact(
        "The shaped operator contracts for -1 < eta < (1-gamma)/(1+gamma)", excess, "excess over the factor", tables
    )


def _fixed_points(tables: int) -> list[Claim]:
    errors, stated = [], []
    for case in _cases(tables):
        plain = solve(case.mdp, case.gamma, tol=1e-12)
        expected = fixed_point(plain.q, case.eta)
        found = solve(case.mdp, case.gamma, eta=case.eta, init=case.rng.random(case.mdp.rewards.shape), tol=1e-12)
        potential = case.eta * found.value
        errors += [np.abs(found.q - expected.q).max(), np.abs(found.value - expected.value).max()]
        errors += [np.abs(potential - expected.potential).max()]
        stated += [np.abs(potential - plain.value / (1 + case.eta)).max()]
    return [
        _exact("It ends in Q0 - Phi, V0/(1+eta), with Phi = eta/(1+eta) V0 (the proof)", max(errors), "error", tables),
        _exact("The potential ends in Phi = V0/(1+eta) (the statement)", max(stated), "error", tables),
    ]


def _no_static_equivalent(tables: int) -> Claim:
    """Fit one static potential to two successive updates; the best one misses them by at least this much."""
    missed = []
    for case in _cases(tables):
        first = case.rng.standard_normal(case.mdp.rewards.shape)
        values = [state_value(q) for q in (first, shaped_bellman(case.mdp, case.gamma, first, case.eta))]
        identity = np.repeat(np.eye(case.mdp.n_states), case.mdp.n_actions, axis=0)
        shaping = case.gamma * case.mdp.transitions.toarray() - identity  # potential -> shaping term, (S * A, S)
        asked = np.concatenate([case.eta * shaping @ value for value in values])
        both = np.concatenate([shaping, shaping])
        best = np.linalg.lstsq(both, asked, rcond=None)[0]
        missed.append(np.abs(both @ best - asked).max())
    shown = f"over {tables} random tables the best static potential misses two updates by at least {min(missed):.1e}"
    return Claim("No static potential gives the same updates", shown, "exact", _holds(min(missed) > EXACT))


def _td0(tables: int) -> Claim:
    """Compare whole runs: the same seed walks the same way, because the policy is fixed."""
    errors = []
    for case in _cases(tables):
        mdp = case.mdp.following(np.full(case.mdp.rewards.shape, 1 / case.mdp.n_actions))
        scaled = replace(mdp, rewards=mdp.rewards / (1 + case.eta))
        shaped = learn(mdp, case.gamma, shaping=Shaping(case.eta), steps=200, alpha=0.1)
        plain = learn(scaled, case.gamma, steps=200, alpha=0.1 * (1 + case.eta))
        errors.append(np.abs(shaped.q - plain.q).max())
    text = "TD(0): the same updates as learning rate x (1+eta) and reward / (1+eta) without shaping"
    return _exact(text, max(errors), "difference after 200 updates", tables)


def _sarsa0(tables: int) -> list[Claim]:
    errors, grows = [], []
    for case in _cases(tables):
        q = case.rng.standard_normal((1, *case.mdp.rewards.shape))
        state, after = (np.array([case.rng.integers(case.mdp.n_states)]) for _ in range(2))
        action = q[0, state].argmin(axis=1)  # the best action has no advantage to look at
        reward, next_action = case.rng.standard_normal(1), q[0, after].argmax(axis=1)
        move, scaled = (
            Transition(state, action, each, after, np.array([False])) for each in (reward, reward / (1 + case.eta))
        )
        here, advantage = q[0, state, action], q[0, state, action] - q[0, state].max(axis=1)
        shaped = action_target(q, move, next_action, case.gamma, "sarsa", Shaping(case.eta)) - here
        plain = action_target(q, scaled, next_action, case.gamma, "sarsa", Shaping(0.0)) - here
        extra = shaped / (1 + case.eta) - plain
        errors.append(np.abs(extra - case.eta / (1 + case.eta) * advantage).max())
        grows.append(bool((np.sign(extra) == np.sign(case.eta * advantage)).all()))  # away from the maximum, if eta > 0
    equal = "SARSA(0): the same updates as the rescaled problem with a term in the gradient of the squared advantage"
    shrinks = "That term regularises the advantage (shrinks it, for eta > 0)"
    shown = (
        f"it has the sign of eta A in {sum(grows)} of {tables} tables: for eta > 0 worse actions fall, the gap grows"
    )
    return [_exact(equal, max(errors), "difference", tables), Claim(shrinks, shown, "exact", _holds(not any(grows)))]


def _fewer_steps() -> list[Claim]:
    """Count steps on the paper's grid: applications of the operator to a residual of 1e-6, over 20 initialisations."""
    mdp, gamma, etas = named_mdp("paper"), 0.8, np.round(np.arange(0, 0.36, 0.01), 2)
    steps = count_steps(mdp, gamma, etas, seeds=range(20), max_steps=5_000)[0].astype(float)
    best = int(steps.mean(axis=1).argmin())
    saved = bootstrap(lambda a, b: 1 - mean(a) / mean(b), steps[best][:, None], steps[0][:, None], seed=0)
    bound = proven_range(gamma)[1]
    times = Claim(
        "The best eta is about 3 times the largest proven one",
        f"{etas[best] / bound:.1f} times ({etas[best]:g} against {bound:.3g}), the best of a grid in steps of 0.01",
        "exact",
        _holds(2.5 <= etas[best] / bound <= 3.5),
    )
    text = "About 20% fewer steps on the 7x7 grid at the best eta"
    shown = (
        f"{saved.estimate:.0%} fewer at eta = {etas[best]:g}: {steps[best].mean():.1f} instead of {steps[0].mean():.1f}"
    )
    return [Claim(text, shown, f"[{saved.low:.0%}, {saved.high:.0%}]", between(saved, 0.15, 0.25)), times]


def _holds(yes: bool) -> Verdict:
    return "holds" if yes else "does not hold"


def between(effect: Interval, low: float, high: float) -> Verdict:
    """Judge whether the quantity is in [low, high]: yes, if all of its interval is; no, if none of it is."""
    if low <= effect.low and effect.high <= high:
        return "holds"
    return "does not hold" if effect.high < low or effect.low > high else "inconclusive"
