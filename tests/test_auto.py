"""eta="auto": what was really returned, the test on it, how V(s') is mixed, and that a run with it can be resumed."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs import Constant, Shaping
from bsrs.agents.replay import ArrayReplay, FrameReplay
from bsrs.agents.returns import LONGEST, STATES, RecentReturns
from bsrs.auto import AUTO, evidence
from bsrs.config.algorithms import find_algorithm
from bsrs.config.training import TrainingConfig
from bsrs.envs import EnvSpec
from bsrs.errors import BadInput
from bsrs.scales import Memory, Returned, Seen, ShapeScale, as_scale
from small_agents import RUN, advance, started

GAMMA = 0.9
# ---- what was returned


def spec(frames: int = 1) -> EnvSpec:
    shape, kind = ((3,), "gym") if frames == 1 else ((frames, 4, 4), "atari")
    fields: dict[str, Any] = {"kind": kind, "obs_dtype": "float32" if frames == 1 else "uint8", "frame_stack": frames}
    return EnvSpec(env="test", obs_shape=shape, n_actions=2, **fields)


@dataclass
class Played:
    """One episode as it was played: observation t is the number `first + t` in every entry."""

    first: int
    rewards: list[float]
    terminated: bool


def play(replay: Any, episodes: list[list[Played]], frames: int = 1) -> None:
    """Step n envs through their episodes; all have the same number of steps."""
    steps = [[(one, t) for one in each for t in range(len(one.rewards))] for each in episodes]
    for now in zip(*steps, strict=True):
        last = [t == len(one.rewards) - 1 for one, t in now]
        replay.add(
            np.stack([observed(one, t, frames) for one, t in now]),
            np.zeros(len(now), np.int64),
            np.array([one.rewards[t] for one, t in now], np.float32),
            np.stack([observed(one, t + 1, frames) for one, t in now]),
            np.array([end and one.terminated for (one, _), end in zip(now, last, strict=True)]),
            np.array([end and not one.terminated for (one, _), end in zip(now, last, strict=True)]),
        )


def observed(one: Played, t: int, frames: int) -> Any:
    if frames == 1:
        return np.full(3, one.first + t, np.float32)
    stack = [np.full((4, 4), one.first + at if at >= 0 else 0) for at in range(t - frames + 1, t + 1)]
    return np.stack(stack).astype(np.uint8)


def made_up(rng: np.random.Generator, envs: int, steps: int) -> list[list[Played]]:
    found = []
    for _ in range(envs):
        lengths, each, first = [], [], 1
        while sum(lengths) < steps:
            lengths.append(min(int(rng.integers(1, 12)), steps - sum(lengths)))
        for length in lengths:
            each.append(Played(first, rng.normal(size=length).tolist(), bool(rng.random() < 0.5)))
            first += length + 1
        found.append(each)
    return found


@pytest.mark.parametrize(
    ("frames", "envs", "capacity"), [(1, 1, 300), (1, 2, 300), (1, 1, 70), (4, 1, 300), (4, 2, 60)]
)
@given(seed=st.integers(0, 1_000))
@settings(max_examples=10, deadline=None)
def test_returns_are_those_that_were_played(frames: int, envs: int, capacity: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    replay = (ArrayReplay if frames == 1 else FrameReplay)(spec(frames), capacity, envs)
    episodes = made_up(rng, envs, 100)
    play(replay, episodes, frames)
    recent = RecentReturns(replay.latest(1_000), GAMMA, most=10_000)
    seen, ends = replay.take(recent.states).obs, replay.take(recent.ends).next_obs

    def newest(obs: Any) -> Any:
        return obs.reshape(len(obs), -1)[:, -1]

    by_state: dict[float, list[tuple[float, float]]] = {}
    for one in (one for each in episodes for one in each):
        for t in range(len(one.rewards)):
            summed = sum(GAMMA**k * r for k, r in enumerate(one.rewards[t:]))
            tail = 0.0 if one.terminated else GAMMA ** (len(one.rewards) - t)
            by_state.setdefault(one.first + t, []).append((summed, tail))
    assert len(recent.reward) > 40
    for state, summed, tail in zip(newest(seen), recent.reward, recent.tail, strict=True):
        assert any(np.allclose((summed, tail), played, atol=1e-5) for played in by_state[state])
    last = {one.first + len(one.rewards) for each in episodes for one in each}
    assert set(newest(ends).tolist()) <= last


def test_long_episodes_are_cut_and_few_states_taken_of_each() -> None:
    replay = ArrayReplay(spec(), 5_000)
    play(replay, [[Played(1, [1.0] * (2 * LONGEST + 100), terminated=True)]])
    recent = RecentReturns(replay.latest(5_000), GAMMA)
    assert np.bincount(recent.episode).tolist() == [STATES] * 3
    assert recent.tail[recent.episode == 2].tolist() == [0.0] * STATES
    assert recent.tail[recent.episode == 1][-1] == pytest.approx(GAMMA)
    assert len(RecentReturns([], GAMMA).states) == 0


# ---- the test on them


def returned(rng: np.random.Generator, episodes: int = 8, states: int = 5, better: float = 0.0) -> Returned:
    n = episodes * states
    reward, noise = rng.normal(size=n), rng.normal(size=(2, n))
    return Returned(
        step=1,
        episode=np.repeat(np.arange(episodes), states),
        reward=reward,
        tail=np.zeros(n),
        value=reward + (1 - better) * noise[0],
        target_value=reward + noise[1],
        end_value=np.zeros(n),
    )


@given(st.integers(0, 1_000), st.floats(0.0, 1.0))
@settings(max_examples=30, deadline=None)
def test_the_evidence_is_a_paired_t_test_over_episodes(seed: int, better: float) -> None:
    seen = returned(np.random.default_rng(seed), better=better)
    ours, theirs = (seen.reward - each for each in (seen.value, seen.target_value))
    gains = (theirs**2 - ours**2).reshape(8, 5).mean(axis=1)
    assert evidence(seen) == pytest.approx(scipy.stats.ttest_1samp(gains, 0.0).statistic)


def test_the_share_follows_the_evidence() -> None:
    scale = AUTO["paired"]()
    for better, low, high in ((0.9, 1.0, scale.most), (-1.0, 0.0, 0.1)):
        rng, memory = np.random.default_rng(0), scale.init()
        for _ in range(20):
            memory = scale.review(memory, returned(rng, better=better))
        assert low <= scale.share(memory, 0) <= high
    few = returned(np.random.default_rng(0), episodes=2, better=0.9)
    assert scale.share(scale.review(scale.init(), few), 0) == 0.0


def test_exploding_values_fall_to_plain_learning_for_good() -> None:
    scale, rng = AUTO["paired"](), np.random.default_rng(0)
    fine = returned(rng, better=0.9)
    memory = scale.review(scale.init(), fine)
    assert scale.at(memory, 0) == 1.0
    assert scale.share(memory, 0) == pytest.approx(0.3)  # a fifth of the way to its most
    for bad in (
        dataclasses.replace(fine, value=1e6 * fine.value),
        dataclasses.replace(fine, end_value=fine.tail * np.nan),
    ):
        after = scale.review(memory, bad)
        assert (scale.at(after, 0), scale.share(after, 0)) == (0.0, 0.0)
        assert scale.review(after, fine) == after


WILD = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(WILD, WILD, WILD), min_size=9, max_size=9), st.lists(WILD, min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_whatever_a_scale_is_shown_eta_and_share_stay_bounded(rows: list[Any], values: list[float]) -> None:
    """Non-finite and enormous values included; JSON holds what is remembered."""
    reward, value, target_value = np.array(rows).T
    ones = np.ones(9)
    seen = Returned(1, np.repeat(np.arange(3), 3), reward, ones, value, target_value, ones)
    batch = Seen(1, 0.0, *(torch.tensor(values, dtype=torch.float64) for _ in range(3)), torch.zeros(4))
    with np.errstate(all="ignore"):
        for make in AUTO.values():
            scale, memory = make(), make().init()
            for _ in range(3):
                memory = scale.review(scale.update(memory, batch), seen)
                assert 0.0 <= scale.at(memory, 1) <= 10.0
                assert 0.0 <= scale.share(memory, 1) <= 2.0
            assert all(math.isfinite(number) for number in memory.values())


def test_text_names_a_scale_and_its_settings() -> None:
    assert as_scale("auto") == as_scale("auto:paired")
    assert as_scale("auto:arrival:most=3") == AUTO["arrival"](most=3.0)
    for text, said in (
        ("auto:arival", "automatic eta 'arival'"),
        ("auto:paired:mots=1", "setting of auto:paired 'mots'"),
        ("auto:paired:most=x", "most = 'x'; expected a number"),
    ):
        with pytest.raises(BadInput, match=said):
            as_scale(text)


# ---- in the agents

CASES = {
    "dqn": {"env": "CartPole-v1", "learning_starts": 20, "train_freq": 1, "target_update_interval": 15},
    "td3": {"env": "Pendulum-v1", "exploration_noise": 0.1, "tau": 0.1, "learning_starts": 20},
    "sac": {"env": "Pendulum-v1", "tau": 0.1, "learning_starts": 20},
}


def config(algorithm: str, **fields: Any) -> TrainingConfig:
    return find_algorithm(algorithm).config_class(**{"steps": 900, **RUN, **CASES[algorithm], **fields})  # type: ignore[call-arg]


@dataclass(frozen=True)
class Fixed(ShapeScale):
    """A fixed share of the online network in V(s')."""

    of: float
    depends_on_state = False
    mixes = True

    def __call__(self, step: int, state: Any = None) -> float:
        return 1.5

    def share(self, memory: Memory, step: int) -> float:
        return self.of


@pytest.mark.parametrize("algorithm", CASES)
@pytest.mark.parametrize(("share", "network"), [(1.0, "online"), (0.0, "split")])
def test_a_share_of_one_is_the_online_and_of_none_the_split_potential(
    algorithm: str, share: float, network: str
) -> None:
    """The transitions come from random play, so that the env does not amplify the rounding."""
    found = []
    for shaping, where in ((Shaping(Fixed(share)), "online"), (Shaping(Constant(1.5)), network)):
        of = config(algorithm, learning_starts=1_000, potential_network=where)
        loop, agent = started([of], shaping)
        advance(loop, 100)
        for _ in range(20):
            agent.gradient_step(agent.sample(), step=100)
        found.append(agent.policy(0).tensors)
    for name, ours in found[0].items():
        torch.testing.assert_close(ours, found[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", CASES)
def test_a_run_with_auto_resumes_bit_for_bit(algorithm: str) -> None:
    """Alone and beside members at a constant eta, which shows that a member's state is its own."""
    of = [config(algorithm, eta=eta, seed=3) for eta in ("auto", 1.0, "auto:arrival")]
    loop, agent = started(of)
    advance(loop, 450)
    states = [loop.state(p) for p in range(3)]
    resumed_loop, resumed = started(of)
    resumed_loop.load_state(states)
    for one in (loop, resumed_loop):
        advance(one, 150)
    shares = [one.population.shaper.shares(600) for one in (agent, resumed)]
    assert shares[0] == shares[1]
    assert shares[0][0] != 0.0
    assert shares[0][1:] == [None, None]
    assert agent.metrics() == resumed.metrics()
    assert agent.population.shaper.in_force(600) == resumed.population.shaper.in_force(600)
    for p in range(3):
        ours, theirs = (one.policy(p).tensors for one in (agent, resumed))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("algorithm", CASES)
def test_a_member_with_auto_learns_as_it_does_alone(algorithm: str) -> None:
    of = [config(algorithm, eta=eta, seed=3, learning_starts=400) for eta in ("auto", 1.0, 0.0)]
    found = []
    for some in (of, of[:1]):
        loop, agent = started(list(some))
        advance(loop, 420)
        found.append(agent.population.shaper.shares(420)[0])
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_share_and_eta_are_in_the_records() -> None:
    loop, agent = started([config("dqn", eta="auto"), config("dqn", eta=1.0)])
    advance(loop, 60)
    with_auto, constant = agent.metrics()
    assert with_auto["eta"] == 1.0
    assert 0.0 <= with_auto["share"] <= 1.5
    assert "share" not in constant


# ---- on top of Stable-Baselines3


def sb3_model(name: str, **changes: Any) -> Any:
    from sb3_twins import build

    target = {"DQN": {"target_update_interval": 25}, "CrossQ": {}}
    return build(name, **{**target.get(name.split()[1].removeprefix("QR"), {"tau": 0.04}), **changes})


@pytest.mark.parametrize(("name", "envs"), [("sb3 DQN", 2), ("sb3 TD3", 1), ("contrib QRDQN", 1)])
def test_sb3_returns_are_those_of_its_episodes(name: str, envs: int) -> None:
    """The returns that the scale is shown are summed here from the monitor of the env, another way."""
    from stable_baselines3.common.env_util import make_vec_env

    from bsrs.agents.returns import RecentReturns
    from bsrs.sb3 import shape
    from bsrs.sb3.replay import latest

    env = make_vec_env("CartPole-v1" if name.endswith("DQN") else "Pendulum-v1", envs, seed=1)
    model = shape(sb3_model(name, env=env), eta="auto")
    model.learn(900)
    lengths = [length for one in env.get_attr("episode_lengths") for length in one]
    totals = [total for one in env.get_attr("episode_returns") for total in one]
    recent = RecentReturns(latest(model.replay_buffer), 1.0, most=10_000)
    firsts = [float(recent.reward[recent.episode == episode][0]) for episode in range(max(recent.episode) + 1)]
    assert len(totals) >= 3
    for total in totals:
        assert any(total == pytest.approx(first, rel=1e-4) for first in firsts)
    assert len(firsts) in (len(lengths), len(lengths) + envs, len(lengths) + 1)
    assert 0.0 <= model.replay_buffer.shaper.share() <= 1.5


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0, 1.5])
def test_sb3_learns_from_the_mixed_target(share: float) -> None:
    """The TD target that SB3 makes of the samples, against the formula with V(s') mixed by hand."""
    from bsrs.sb3 import shape
    from sb3_twins import filled

    model, twin = shape(filled("sb3 DQN"), eta=Fixed(share)), filled("sb3 DQN")
    batches = []
    for each in (model, twin):
        with torch.no_grad():
            each.q_net_target.q_net[0].weight.mul_(1.5)
        np.random.seed(0)  # noqa: NPY002 (what SB3 samples with)
        batches.append(each.replay_buffer.sample(32))
    shaped, plain = batches
    with torch.no_grad():
        value, online, target = (
            net(obs).amax(dim=1, keepdim=True)
            for net, obs in (
                (twin.q_net, plain.observations),
                (twin.q_net, plain.next_observations),
                (twin.q_net_target, plain.next_observations),
            )
        )
    learnt = shaped.rewards + (1 - shaped.dones) * shaped.discounts * target  # as in DQN.train
    mixed = share * online + (1 - share) * target
    reward = plain.rewards + 1.5 * (twin.gamma * mixed * (1 - plain.dones) - value)
    torch.testing.assert_close(learnt, reward + (1 - plain.dones) * twin.gamma * target)


@pytest.mark.parametrize("name", ["contrib CrossQ", "PPO"])
def test_sb3_says_where_auto_has_no_target_network(name: str) -> None:
    from stable_baselines3 import PPO

    from bsrs.sb3 import shape

    model = PPO("MlpPolicy", "CartPole-v1", device="cpu") if name == "PPO" else sb3_model(name)
    with pytest.raises(BadInput, match="target network"):
        shape(model, eta="auto")
    with pytest.raises(BadInput, match="asks both networks itself"):
        shape(sb3_model("sb3 DQN"), eta="auto", network="target")


@pytest.mark.parametrize("kind", ["optimize_memory_usage", "VecNormalize", "dict"])
def test_sb3_buffers_of_every_kind(kind: str) -> None:
    """What the scale is shown of a buffer is finite, and of as many states as there are."""
    import gymnasium as gym
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    from bsrs.sb3 import shape
    from sb3_twins import algorithm

    def as_dict(env: Any) -> Any:
        space = gym.spaces.Dict({"all": env.observation_space})
        return gym.wrappers.TransformObservation(env, lambda obs: {"all": obs}, space)

    env: Any = make_vec_env("CartPole-v1", 2, seed=1, wrapper_class=as_dict if kind == "dict" else None)
    env = VecNormalize(env) if kind == "VecNormalize" else env
    options: dict[str, Any] = {"learning_starts": 60, "target_update_interval": 20, "seed": 1, "device": "cpu"}
    if kind == "optimize_memory_usage":
        options |= {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    policy = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    model = shape(algorithm("sb3 DQN")(policy, env, buffer_size=150, **options), eta="auto")
    shown: list[Returned] = []
    shaper: Any = model.replay_buffer.shaper
    shaper.review = shown.append
    model.learn(400)
    assert len(shown) > 10
    for each in shown:
        assert np.isfinite([each.value, each.target_value, each.end_value, each.reward]).all()
        assert (each.value != each.target_value).any()
