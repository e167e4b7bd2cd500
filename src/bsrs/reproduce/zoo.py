"""Does shaping add anything to an agent that somebody tuned? Six tasks with the settings of rl-baselines3-zoo."""

from collections.abc import Sequence
from dataclasses import replace

from bsrs.config.training import TrainingConfig
from bsrs.errors import unknown
from bsrs.reproduce.claims import Claim, Scope, constant_etas, corrected
from bsrs.reproduce.continuous import gains
from bsrs.stats.records import Series
from bsrs.sweep.plan import expand, read_sweep

PRESETS = (
    "zoo-cartpole",
    "zoo-mountaincar",
    "zoo-acrobot",
    "zoo-lunarlander",
    "zoo-pendulum-td3",
    "zoo-pendulum-sac",
)


def plan(scale: str, envs: Sequence[str]) -> list[TrainingConfig]:
    """Every run at a scale, on these envs or on all."""
    configs = [config for name in PRESETS for config in expand(read_sweep(name, scale, {}))]
    known = list(dict.fromkeys(config.env for config in configs))
    for env in envs:
        if env not in known:
            raise unknown("env of this experiment", env, known)
    return [config for config in configs if not envs or config.env in envs]


def lengths(envs: Sequence[str]) -> dict[str, int]:
    """Env steps that a verdict needs: the zoo's own."""
    return {config.env: config.steps for config in plan("paper", envs)}


def judge_zoo(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Two questions about all tasks together: with an eta that was tuned as well, and with one that chooses itself."""
    scope = replace(scope, questions=2, tasks=len(PRESETS))
    auto = [each for each in series if each.eta in (0.0, "auto")]
    tuned, chosen = (
        "(Ours) A tuned eta adds to agents that are tuned",
        "(Ours) eta = auto adds to agents that are tuned",
    )
    return corrected(
        [
            gains(tuned, constant_etas(series), scope),
            gains(chosen, auto, scope, schedule="auto"),
        ]
    )
