"""Over-relaxed Q-learning from samples: BSRS, SOR Q-learning (Kamanchi et al., 2019), and plain Q-learning.

SOR Q-learning moves Q(s, a) towards w (r + gamma V(s')) + (1 - w) V(s). That is BSRS with eta = w - 1 on rewards
times w: the two learn the same table up to the factor w, step by step. Its authors prove convergence for w up to
1 / (1 - gamma min p(s | s, a)), which is 1, no relaxation at all, wherever some action leaves its state for sure.

On the greedy action a relaxation acts like a larger learning rate. So plain Q-learning with the rate times 1 + eta
runs as the control.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bsrs.shaping import Constant, Shaping
from bsrs.stats import Interval, bootstrap, mean
from bsrs.tabular import MDP, solve
from bsrs.tabular.grids import named_mdp
from bsrs.tabular.learning import Learned, learn
from bsrs.tabular.mdp import Floats, Ints

SEEDS = 20
ETA = 0.5
RATE = 0.1
# Exploring starts and short episodes: what is compared is the update, not the luck of finding a goal.
EPSILON, EPISODE_STEPS = 0.3, 20
ENVS = {"paper's grid": ("paper", 0.8), "FrozenLake": ("FrozenLake-v1", 0.95)}


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Distance from the optimal value against steps: the mean over seeds and its 95% interval."""

    env: str
    rule: str
    steps: Ints
    error: Interval  # (steps,)


def compare_learning(steps: int) -> list[LearningCurve]:
    """Learn with each rule on each env, with the same seeds."""
    return [
        LearningCurve(env, rule, taken, bootstrap(mean, error[:, :, None], seed=0, draws=1000))
        for env, (name, gamma) in ENVS.items()
        for rule, taken, error in _errors(named_mdp(name), gamma, steps)
    ]


def _errors(mdp: MDP, gamma: float, steps: int) -> Iterator[tuple[str, Ints, Floats]]:
    """Yield (rule, steps, errors (records, seeds)); the first three rules run as one batch."""
    optimum = solve(mdp, gamma, tol=1e-10).value
    rules = {"Q-learning": (0.0, RATE), "BSRS": (ETA, RATE), "Q-learning, rate × (1 + η)": (0.0, RATE * (1 + ETA))}
    etas, rates = np.repeat(np.array(list(rules.values())), SEEDS, axis=0).T
    mdp = replace(mdp, start=np.full(mdp.n_states, 1 / mdp.n_states))
    learned = relaxed_learning(mdp, gamma, etas, rates, optimum, steps)
    for place, rule in enumerate(rules):
        yield rule, learned.steps, learned.error[:, place * SEEDS : (place + 1) * SEEDS]
    sor = sor_learning(mdp, gamma, ETA, optimum, steps)
    yield "SOR Q-learning", sor.steps, sor.error


def relaxed_learning(mdp: MDP, gamma: float, etas: Floats, rates: Floats, optimum: Floats, steps: int) -> Learned:
    """Run Q-learning with an eta and a learning rate for each run, cycling through the seeds."""
    return learn(
        mdp,
        gamma,
        shaping=Shaping(Constant(etas)),
        seeds=[run % SEEDS for run in range(len(etas))],
        steps=steps,
        alpha=lambda visits: rates,
        epsilon=EPSILON,
        episode_steps=EPISODE_STEPS,
        reference=optimum,
        record_every=max(steps // 50, 1),
    )


def sor_learning(mdp: MDP, gamma: float, eta: float, optimum: Floats, steps: int) -> Learned:
    """Run SOR Q-learning with w = 1 + eta, through the identity above."""
    scaled = replace(mdp, rewards=(1 + eta) * mdp.rewards)
    etas, rates = np.full(SEEDS, eta), np.full(SEEDS, RATE)
    # The table is the unshaped one already, where `relaxed_learning` measures (1 + eta) times it.
    learned = relaxed_learning(scaled, gamma, etas, rates, (1 + eta) * optimum, steps)
    return replace(learned, error=learned.error / (1 + eta))
