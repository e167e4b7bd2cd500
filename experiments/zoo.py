"""Does shaping add anything to a tuned agent? Six tasks with the settings of rl-baselines3-zoo."""

from collections.abc import Sequence
from dataclasses import replace

from bsrs.config.agents import ActorCriticConfig, DQNConfig
from bsrs.config.base import to_dict
from bsrs.config.settings import RunSettings
from bsrs.config.training import TrainingConfig
from bsrs.stats.records import Series
from bsrs.sweep.plan import SCALES, expand, read_sweep
from experiments.claims import Claim, Scope, constant_etas, corrected, judged
from experiments.pooling import by_task, gains, gains_of, judge_end, judge_pooled, pair_gains, shared_etas
from experiments.variant_configs import DQNTargetConfig
from experiments.variants import as_options

PRESETS = (
    "zoo-cartpole",
    "zoo-mountaincar",
    "zoo-acrobot",
    "zoo-lunarlander",
    "zoo-pendulum-td3",
    "zoo-pendulum-sac",
)
HEADLINE = 1.0  # the eta of the claims about one eta; 1 was the best constant on other seeds


def plan(scale: str) -> list[TrainingConfig]:
    """List every run at a scale."""
    return [config for name in PRESETS for config in expand(read_sweep(name, scale, {}))]


def faster_target(config: TrainingConfig) -> TrainingConfig:
    """Return the control: the baseline with a target network 1 + eta times as fast at eta = 1, which is twice.

    Where many gradient steps follow each other, the target network is copied between them: with the interval alone,
    the tuned CartPole agent (10 env steps, but a round of 128 gradient steps every 256) would learn as before.
    """
    if isinstance(config, ActorCriticConfig):
        return replace(config, tau=2 * config.tau)
    assert isinstance(config, DQNConfig)
    if config.target_update_interval < config.train_freq:
        return DQNTargetConfig(**to_dict(config), target_every=config.gradient_steps // 2)
    return replace(config, target_update_interval=config.target_update_interval // 2)


def controls(series: Sequence[Series]) -> tuple[list[Series], list[Series]]:
    """Part the series into the study's own and those of the control."""
    configs = [faster_target(replace(config, eta=0.0)) for scale in SCALES for config in plan(scale)]
    known = {as_options(RunSettings.of(config)).identity for config in configs}
    own: list[Series] = []
    control: list[Series] = []
    for each in series:
        (control if any(run.config.identity in known for run in each.runs) else own).append(each)
    return own, control


def judge_zoo(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge a tuned eta and `auto`, over training and at the end, and one eta against a faster target network."""
    own, control = controls(series)
    scope = replace(scope, questions=7, tasks=len(PRESETS))
    these, like_these = "(Ours) On the zoo's six tuned agents", "(Ours) On tuned agents like the zoo's"
    what = "gains over training"
    claims = gains((f"{these} a tuned eta {what}", f"{like_these} a tuned eta {what}"), constant_etas(own), scope)
    what = f"eta = auto (version 0.1) {what}"
    claims += gains((f"{these} {what}", f"{like_these} {what}"), own, scope, schedule="auto")
    if tasks := shared_etas([each for each in own if each.eta in (0.0, HEADLINE)]):
        claims.append(judge_end(f"{these} eta = {HEADLINE:g} does not lower the final score", gains_of(tasks), scope))
    return corrected([*claims, *_against_faster_target(own, control, scope)])


def _against_faster_target(own: Sequence[Series], control: Sequence[Series], scope: Scope) -> list[Claim]:
    """Compare shaping with a target network that is 1 + eta times as fast, without shaping."""
    text = f"(Ours) Shaping with eta = {HEADLINE:g} beats a target network twice as fast"
    pairs = {
        task: [(shaped, faster) for shaped in each for faster in control if is_pair(shaped, faster)]
        for task, each in by_task([each for each in own if each.eta == HEADLINE]).items()
    }
    pairs = {task: each for task, each in pairs.items() if each}
    if not pairs:
        return [judged(text, None, "", scope)]
    return judge_pooled((text, f"{text}, on tasks like these"), pair_gains(pairs), "", scope)


def is_pair(shaped: Series, faster: Series) -> bool:
    """Return whether the two are of one agent on one env, with seeds in common."""
    algorithms = {each.config.algorithm.partition("-")[0] for each in (shaped, faster)}
    return shaped.env == faster.env and len(algorithms) == 1 and bool(set(shaped.seeds) & set(faster.seeds))
