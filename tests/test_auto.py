"""eta="auto": its derivation on linear TD, its probes, and runs with it that are resumed, saved and continued."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs import DQN, Constant, Shaping
from bsrs.adapting import BatchShaper
from bsrs.auto import Movement
from bsrs.config.algorithms import find_algorithm
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.scales import Memory, ShapeScale, as_scale
from bsrs.shaping import Shaper
from small_agents import RUN, advance, scale, started

# ---- on linear TD: a period of the target network solves for the mixed target, mode by mode


def linear_td(
    factors: Any, periods: int, *, inner: int = 0, noise: float = 0.0, shapes: bool = True, seed: int = 0
) -> tuple[list[float], np.ndarray]:
    """Let values approach zero, and return b after every period and the distance that is left.

    Every mode has its eigenvalue `factors` of the Bellman operator. A period solves its TD equation, or takes `inner`
    steps towards the solution. The probes mix the modes; `noise` is added to what is seen of them.
    """
    rng = np.random.default_rng(seed)
    factors = np.asarray(factors, float)
    probes = rng.standard_normal((64, len(factors)))
    rule, memory = Movement(), Movement().init()
    modes, target, shares = np.ones(len(factors)), np.ones(len(factors)), []
    for _ in range(periods):
        b = float(memory["b"]) if shapes else 0.0
        if inner:
            for _ in range(inner):
                modes = modes + 0.1 * (factors * ((1 - b) * target + b * modes) - modes)
        else:
            modes = factors * (1 - b) / (1 - b * factors) * target
        target = modes
        memory = rule.look(memory, probes @ modes + noise * rng.standard_normal(64))
        shares.append(float(memory["b"]))
    return shares, np.abs(modes)


@pytest.mark.parametrize("factor", [0.1, 0.25, 0.4, 0.49])
def test_b_follows_the_factor_of_one_mode(factor: float) -> None:
    """Exactly, although b itself changes how fast values move: every period's share is in the derivation."""
    shares, _ = linear_td([factor], 40)
    assert shares[-1] == pytest.approx(factor, abs=1e-6)
    assert shares[:4] == pytest.approx([0.0, 0.0, factor / 2, 3 * factor / 4])


@pytest.mark.parametrize("factor", [0.6, 0.9, 0.99])
def test_b_stops_at_its_most_on_slow_modes(factor: float) -> None:
    shares, left = linear_td([factor], 40)
    assert shares[-1] == pytest.approx(0.5, abs=1e-6)
    assert left[0] < linear_td([factor], 60, shapes=False)[1][0]  # as far as the baseline in half as many more


def test_b_lies_between_the_factors_of_several_modes() -> None:
    shares, left = linear_td([0.1, 0.3, 0.45], 40)
    assert 0.3 < shares[-1] < 0.45
    assert (left < linear_td([0.1, 0.3, 0.45], 40, shapes=False)[1]).all()


def test_two_timescales() -> None:
    """A period that does not reach its solution looks like a slower mode: b is larger, and values arrive sooner."""
    solved, unfinished = (linear_td([0.2], 40, inner=inner)[0][-1] for inner in (0, 10))
    assert solved == pytest.approx(0.2)
    assert 0.3 < unfinished <= 0.5
    ours, baseline = (linear_td([0.95], 40, inner=20, shapes=shapes)[1][0] for shapes in (True, False))
    assert ours < 0.7 * baseline


def test_noise_gives_the_baseline() -> None:
    """Records of settled values are independent draws: their movements turn back, and s is -1/2."""
    for seed in range(5):
        shares, _ = linear_td([0.0], 60, noise=1.0, seed=seed)
        assert max(shares[8:]) < 0.05


def test_values_that_settle_into_noise_bring_b_back_to_zero() -> None:
    shares, _ = linear_td([0.9], 150, noise=0.02)
    assert max(shares) > 0.45
    assert shares[-1] < 0.05


def test_noise_smaller_than_the_movement_hides_little_of_it() -> None:
    shares, _ = linear_td([0.97], 15, noise=0.01)
    assert shares[-1] > 0.45


def test_replaced_probes_are_no_movement() -> None:
    rule, memory = Movement(), Movement().init()
    for k in range(6):
        memory = rule.look(memory, np.full(8, float(k)))
    before = rule.slope(memory)
    memory = rule.look(rule.forget(memory), np.full(8, 1e6))
    assert rule.slope(memory) == before > 0
    assert memory["b"] > 0.4


@given(st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4), max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_the_rule_is_shown_b_stays_between_zero_and_its_most(values: list[list[float]]) -> None:
    rule, memory = Movement(), Movement().init()
    with np.errstate(all="ignore"):
        for value in values:
            memory = rule.look(memory, np.array(value))
            assert 0.0 <= memory["b"] <= rule.most
            assert 0.0 <= rule.at(memory, 0) <= 1.0


def test_values_that_are_not_finite_start_the_rule_again() -> None:
    rule, memory = Movement(), Movement().init()
    for k in range(6):
        memory = rule.look(memory, np.full(8, float(k)))
    assert rule.look(memory, np.array([0.0, math.nan] * 4)) == rule.init()


def test_auto_has_no_settings() -> None:
    assert as_scale("auto") == Movement()
    for text in ("auto:paired", "auto:arrival:most=3"):
        with pytest.raises(BadInput, match="auto has no settings"):
            as_scale(text)


# ---- in the agents

CASES: dict[str, dict[str, Any]] = {
    "dqn": {"env": "CartPole-v1", "learning_starts": 20, "train_freq": 1, "target_update_interval": 15},
    "td3": {"env": "Pendulum-v1", "exploration_noise": 0.1, "tau": 0.1, "learning_starts": 20},
    "sac": {"env": "Pendulum-v1", "tau": 0.1, "learning_starts": 20},
}


def config(algorithm: str, **fields: Any) -> TrainingConfig:
    return find_algorithm(algorithm).config_class(**{"steps": 900, **RUN, **CASES[algorithm], **fields})  # type: ignore[call-arg]


@dataclass(frozen=True)
class Fixed(ShapeScale):
    """A fixed share of the online network in V(s')."""

    depends_on_state = False
    mixes = True

    of: float

    def __call__(self, step: int, state: Any = None) -> float:
        return 1.5

    def mix(self, memory: Memory, step: int) -> tuple[float, float]:
        return self.of, 1.0


def learnt_from_random_play(of: TrainingConfig, shaping: Shaping, *, kernels: bool) -> dict[str, torch.Tensor]:
    """The weights after a few updates on transitions that do not depend on them."""
    loop, agent = started([of], shaping, use_kernels=kernels)
    advance(loop, 100)
    for name in agent.targets:
        scale(agent.networks[name], 0.7)
    for _ in range(20):
        agent.updates += 1
        if kernels:
            agent.kernel.train(100)
        else:
            agent.train_on(agent.sample(), 100)
    return agent.policy(0).tensors


@pytest.mark.parametrize("kernels", [True, False], ids=["kernel", "reference"])
@pytest.mark.parametrize("algorithm", CASES)
@pytest.mark.parametrize(("share", "network"), [(1.0, "online"), (0.0, "split")])
def test_a_share_of_one_is_the_online_and_of_none_the_split_potential(
    algorithm: str, share: float, network: str, kernels: bool
) -> None:
    mixed, plain = (
        learnt_from_random_play(config(algorithm, learning_starts=1_000, potential_network=where), of, kernels=kernels)
        for of, where in ((Shaping(Fixed(share)), "online"), (Shaping(Constant(1.5)), network))
    )
    for name, ours in mixed.items():
        torch.testing.assert_close(ours, plain[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", CASES)
def test_kernels_honour_a_share_between(algorithm: str) -> None:
    of = config(algorithm, learning_starts=1_000)
    kernel, reference, online = (
        learnt_from_random_play(of, Shaping(Fixed(share)), kernels=kernels)
        for share, kernels in ((0.4, True), (0.4, False), (1.0, True))
    )
    for name, ours in kernel.items():
        torch.testing.assert_close(ours, reference[name], rtol=1e-3, atol=1e-5)
    assert max((online[name] - ours).abs().max() for name, ours in kernel.items()) > 1e-4


@dataclass(frozen=True)
class KeepsScale(ShapeScale):
    """A fixed eta that keeps the scale of V."""

    depends_on_state = False
    mixes = True

    eta: float

    def __call__(self, step: int, state: Any = None) -> float:
        return self.eta

    def mix(self, memory: Memory, step: int) -> tuple[float, float]:
        return 1.0, 1 + self.eta


@pytest.mark.parametrize("algorithm", CASES)
def test_kernels_multiply_the_reward(algorithm: str) -> None:
    of = config(algorithm, learning_starts=1_000, learning_rate=1e-3)
    kernel, reference, constant = (
        learnt_from_random_play(of, Shaping(scale), kernels=kernels)
        for scale, kernels in ((KeepsScale(0.7), True), (KeepsScale(0.7), False), (Constant(0.7), True))
    )
    for name, ours in kernel.items():
        torch.testing.assert_close(ours, reference[name], rtol=1e-3, atol=1e-5)
    assert max((constant[name] - ours).abs().max() for name, ours in kernel.items()) > 1e-4


def test_v_keeps_its_scale_whatever_eta_is() -> None:
    """A state that pays 1 for ever: V = 1 / (1 - gamma), where a constant eta of the paper has 1 / (1 + eta) of it."""
    for of, scaled in ((KeepsScale(0.7), 1.0), (Constant(0.7), 1 / 1.7)):
        shaper, q = Shaper(Shaping(of)), np.zeros(1)
        for _ in range(500):
            q = q + 0.2 * (shaper(np.ones(1), q, q, gamma=0.9) + 0.9 * q - q)
        assert q[0] == pytest.approx(scaled * 10, rel=1e-4)


def test_an_adapters_term_has_the_factor_of_the_reward() -> None:
    reward, value, next_value = torch.tensor([1.0, -2.0]), torch.tensor([4.0, 5.0]), torch.tensor([7.0, 8.0])
    given: dict[str, Any] = {"reward": reward, "gamma": 0.9, "terminated": torch.tensor([False, True])}
    term = BatchShaper(KeepsScale(0.5)).term(value, next_value, **given)
    # eta (gamma V' - V) + eta r = 0.5 (6.3 - 4) + 0.5, 0.5 (0 - 5) - 1
    torch.testing.assert_close(term, torch.tensor([1.65, -3.5]))


@pytest.mark.parametrize("algorithm", CASES)
def test_a_run_with_auto_resumes_exactly(algorithm: str) -> None:
    """Next to a member at a constant eta, which shows that a member's state is its own."""
    of = [config(algorithm, eta=eta, seed=3) for eta in ("auto", 1.0)]
    loop, agent = started(of)
    advance(loop, 250)
    states = [loop.state(p) for p in range(2)]
    assert len(states[0].part("agent").part("probes").arrays["obs"]) == Movement.probes
    resumed_loop, resumed = started(of)
    for p, state in enumerate(states):
        resumed_loop.load_state(p, state)
    for one in (loop, resumed_loop):
        advance(one, 150)
    assert agent.shapers[0].state() == resumed.shapers[0].state()
    assert agent.shapers[0].coefficients(400)[0] > 0
    assert agent.metrics() == resumed.metrics()
    for p in range(2):
        ours, theirs = (one.policy(p).tensors for one in (agent, resumed))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("algorithm", CASES)
def test_a_member_with_auto_learns_as_it_does_alone(algorithm: str) -> None:
    of = [config(algorithm, eta=eta, seed=3, learning_starts=200) for eta in ("auto", 1.0, 0.0)]
    found = []
    for some in (of, of[:1]):
        loop, agent = started(list(some))
        advance(loop, 260)
        found.append(agent.shapers[0].in_force(260))
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-3)


def test_the_probes_are_drawn_from_the_replay_by_a_stream_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bsrs.agents.probes.REPLACED_AFTER", 4)
    of = [config("dqn", eta="auto", seed=seed) for seed in (3, 4)]
    loop, agent = started(of)
    drawn: list[np.ndarray] = []
    advance(loop, 15)  # learning has not started
    for _ in range(10):
        advance(loop, 15)
        drawn.append(agent.state(0).part("probes").arrays["obs"])
    new = [k for k in range(1, 10) if not np.array_equal(drawn[k], drawn[k - 1])]
    assert len(new) == 2
    assert new[1] - new[0] == 4
    seen = {row.tobytes() for row in agent.replay.arrays.obs[0]}
    assert all(row.tobytes() in seen for row in drawn[-1])
    again_loop, again = started(of[:1])  # alone: the other member has no part in it
    advance(again_loop, 30)
    np.testing.assert_array_equal(again.state(0).part("probes").arrays["obs"], drawn[0])


def test_values_that_no_gradient_step_has_moved_are_not_looked_at_twice() -> None:
    """Tuned CartPole copies the target network every 10 steps and learns every 256: the period is 256."""
    loop, agent = started([config("dqn", eta="auto", train_freq=64, target_update_interval=10)])
    advance(loop, 640)
    assert agent.state(0).part("probes").info["looks"] == 10


def test_eta_and_slope_are_in_the_records() -> None:
    loop, agent = started([config("dqn", eta="auto"), config("dqn", eta=1.0)])
    advance(loop, 120)
    with_auto, constant = agent.metrics()
    assert 0.0 <= with_auto["eta"] <= 1.0
    assert with_auto["slope"] >= 0.0
    assert constant["eta"] == 1.0
    assert "slope" not in constant


def test_a_saved_model_continues_with_the_same_eta(tmp_path: Path) -> None:
    learner = DQN.of(
        "CartPole-v1", eta="auto", steps=300, **{k: v for k, v in {**RUN, **CASES["dqn"]}.items() if k != "env"}
    )
    learner.learn().save(tmp_path / "run")
    before = learner.agent.shapers[0].in_force(300)
    assert before["eta"] > 0
    loaded = DQN.load(tmp_path / "run")
    assert loaded.agent.shapers[0].in_force(300) == before
    loaded.learn(200)
    assert loaded.step == 500
