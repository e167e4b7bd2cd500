"""TorchRL: targets equal the formula from the loss's own networks, eta = 0 changes nothing, state is saved."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

from support import auto_target, run_page_code

torchrl = pytest.importorskip("torchrl")

import tensordict.nn as tdnn  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from torchrl.data import Bounded, HERReplayBuffer, LazyTensorStorage, TensorDictReplayBuffer  # noqa: E402
from torchrl.envs import (  # noqa: E402
    Compose,
    GymEnv,
    ObservationNorm,
    RewardScaling,
    SerialEnv,
    TransformedEnv,
)
from torchrl.envs.transforms.rb_transforms import MultiStepTransform  # noqa: E402
from torchrl.modules import (  # noqa: E402
    MLP,
    NormalParamExtractor,
    ProbabilisticActor,
    QValueActor,
    TanhNormal,
    ValueOperator,
)
from torchrl.objectives import DDPGLoss, DistributionalDQNLoss, DQNLoss, HardUpdate, SACLoss, SoftUpdate, TD3Loss  # noqa: E402

import bsrs.torchrl  # noqa: E402
from bsrs import BadInput, Linear, PerState  # noqa: E402
from bsrs.adapting import separate_rng  # noqa: E402

# TorchRL's own warnings about itself and PyTorch; an error of ours is no warning.
pytestmark = pytest.mark.filterwarnings("ignore")

GAMMA = 0.97


def make_env(env_id: str) -> Any:
    """Two envs, with normalised observations and rewards and short episodes."""
    envs = SerialEnv(2, lambda: GymEnv(env_id, categorical_action_encoding=True, max_episode_steps=15))
    return TransformedEnv(
        envs, Compose(ObservationNorm(0.1, 2.0, in_keys=["observation"]), RewardScaling(loc=0.0, scale=0.1))
    )


def sampled_batch(env_id: str, n_step: int) -> Any:
    torch.manual_seed(0)
    env = make_env(env_id)
    env.set_seed(0)
    transform = MultiStepTransform(n_steps=n_step, gamma=GAMMA) if n_step > 1 else None
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(500, ndim=2), batch_size=128, transform=transform)
    for _ in range(4):
        data = env.rollout(40, break_when_any_done=False)
        replay.extend(data)
    env.close()
    batch = replay.sample()
    if env_id == "Pendulum-v1":  # it never terminates by itself
        batch["next", "terminated"] = torch.rand(batch["next", "done"].shape) < 0.2
        batch["next", "done"] |= batch["next", "terminated"]
    return batch


def dqn_loss(**options: Any) -> Any:
    actor = QValueActor(
        MLP(in_features=4, out_features=2, num_cells=[32]), in_keys=["observation"], action_space="categorical"
    )
    return DQNLoss(actor, action_space="categorical", delay_value=True, loss_function="l2", **options)


def double_dqn_loss() -> Any:
    return dqn_loss(double_dqn=True)


def critic() -> Any:
    return ValueOperator(MLP(in_features=4, out_features=1, num_cells=[32]), in_keys=["observation", "action"])


def actor() -> Any:
    return tdnn.TensorDictModule(
        torch.nn.Sequential(MLP(in_features=3, out_features=1, num_cells=[32]), torch.nn.Tanh()),
        in_keys=["observation"],
        out_keys=["action"],
    )


def ddpg_loss() -> Any:
    return DDPGLoss(actor(), critic(), delay_value=True)


def td3_loss() -> Any:
    return TD3Loss(actor(), critic(), bounds=(-2.0, 2.0))


def sac_loss() -> Any:
    network = torch.nn.Sequential(MLP(in_features=3, out_features=2, num_cells=[32]), NormalParamExtractor())
    params = tdnn.TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"])
    spec = Bounded(-2, 2, (1,))
    policy = ProbabilisticActor(params, in_keys=["loc", "scale"], spec=spec, distribution_class=TanhNormal)
    return SACLoss(policy, critic(), target_entropy=-1.0)


def make(make_loss: Callable[[], Any], seed: int = 0) -> Any:
    torch.manual_seed(seed)
    loss = make_loss()
    loss.make_value_estimator(gamma=GAMMA)
    for name, parameter in loss.named_buffers():  # target networks that differ from the online ones
        if name.startswith("target_") and parameter.is_floating_point():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return loss


LOSSES = {"DQN": dqn_loss, "double DQN": double_dqn_loss, "DDPG": ddpg_loss, "TD3": td3_loss, "SAC": sac_loss}


def env_of(name: str) -> str:
    return "CartPole-v1" if "DQN" in name else "Pendulum-v1"


def reference_value(loss: Any, td: Any) -> torch.Tensor:
    """V(s), (B,), written out with the loss's networks."""
    with torch.no_grad():
        if isinstance(loss, DQNLoss):
            with loss.value_network_params.to_module(loss.value_network):
                return loss.value_network(td.select("observation"))["action_value"].amax(-1)
        log_prob: torch.Tensor | float = 0.0
        td = td.select("observation")
        with loss.actor_network_params.to_module(loss.actor_network):
            if isinstance(loss, SACLoss):
                dist = loss.actor_network.get_dist(td)
                td["action"] = dist.rsample()
                log_prob = dist.log_prob(td["action"])
            else:
                loss.actor_network(td)
        if isinstance(loss, DDPGLoss):
            with loss.value_network_params.to_module(loss.value_network):
                return loss.value_network(td)["state_action_value"].squeeze(-1)
        q = []
        for i in range(2):
            with loss.qvalue_network_params[i].to_module(loss.qvalue_network):
                q.append(loss.qvalue_network(td.copy())["state_action_value"].squeeze(-1))
        return torch.minimum(*q) - (loss.log_alpha.exp() * log_prob if isinstance(loss, SACLoss) else 0.0)


def targets(loss: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """The target without and with shaping that one forward pass of a shaped loss computes, and its output."""
    seen = []
    shaped_target = bsrs.torchrl.LossShaping.shaped_target

    def record(self: Any, target: torch.Tensor, *rest: Any) -> torch.Tensor:
        shaped = shaped_target(self, target, *rest)
        seen.append((target.reshape(-1), shaped.reshape(-1)))
        return shaped

    with monkeypatch.context() as patch:
        patch.setattr(bsrs.torchrl.LossShaping, "shaped_target", record)
        out = loss(batch)
    assert len(seen) == 1
    return *seen[0], out


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_targets_equal_the_formula(name: str, n_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = sampled_batch(env_of(name), n_step)
    loss = bsrs.torchrl.shape(make(LOSSES[name]), eta=0.7)
    plain, shaped, out = targets(loss, batch, monkeypatch)
    with separate_rng(1):
        value, next_value = reference_value(loss, batch), reference_value(loss, batch["next"])
    steps = batch["steps_to_next_obs"].reshape(-1) if n_step > 1 else torch.ones(128)
    terminated, done = batch["next", "terminated"].reshape(-1), batch["next", "done"].reshape(-1)
    assert terminated.any()
    assert (done & ~terminated).any()
    assert n_step == 1 or len(steps.unique()) > 1  # tails of episodes have fewer steps
    term = 0.7 * (GAMMA**steps * ~terminated * next_value - value)
    torch.testing.assert_close(shaped, plain + term, atol=1e-5, rtol=0)
    assert float(out["shaping_eta"]) == pytest.approx(0.7)
    torch.testing.assert_close(out["shaping_mean"], term.mean(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_auto_halves_the_reward_before_values_have_moved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = sampled_batch(env_of(name), 1)
    loss = make(LOSSES[name])
    loss = bsrs.torchrl.shape(loss, eta="auto", updater=SoftUpdate(loss, tau=0.1))
    plain, shaped, out = targets(loss, batch, monkeypatch)
    assert float(out["shaping_eta"]) == 0.0
    torch.testing.assert_close(shaped, plain - batch["next", "reward"].reshape(-1) / 2, atol=5e-3, rtol=2e-3)


def test_auto_mixes_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, loss = sampled_batch("CartPole-v1", 3), make(dqn_loss)
    loss = bsrs.torchrl.shape(loss, eta="auto", updater=SoftUpdate(loss, tau=0.1))
    shaper = loss.shaping.batches
    state = shaper.state()
    state["scale"]["memory"]["b"] = 0.5
    shaper.load_state(state)
    plain, shaped, out = targets(loss, batch, monkeypatch)
    value, next_value = reference_value(loss, batch), reference_value(loss, batch["next"])
    alive = GAMMA ** batch["steps_to_next_obs"].reshape(-1) * ~batch["next", "terminated"].reshape(-1)
    expected = auto_target(0.5, plain, batch["next", "reward"].reshape(-1), value, alive * next_value)
    torch.testing.assert_close(shaped, expected, atol=1e-5, rtol=0)
    assert float(out["shaping_eta"]) == 1.0


def train(loss: Any, batches: list[Any], updater: Any = None) -> list[torch.Tensor]:
    updater = updater or SoftUpdate(loss, tau=0.05)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    torch.manual_seed(1)
    for batch in batches:
        out = loss(batch.clone())
        optimizer.zero_grad()
        sum(part for key, part in out.items() if key.startswith("loss")).backward()
        optimizer.step()
        updater.step()
    return [p.detach().clone() for p in loss.parameters()]


@pytest.mark.parametrize("name", ["DQN", "DDPG", "TD3", "SAC"])
def test_eta_zero_leaves_training_unchanged(name: str) -> None:
    """At 1e-30 everything is computed and nothing is added: the random numbers of the loss stay the same too."""
    batches = [sampled_batch(env_of(name), 1)] * 5
    plain = train(make(LOSSES[name]), batches)
    for eta in (0.0, 1e-30):
        shaped = train(bsrs.torchrl.shape(make(LOSSES[name]), eta=eta), batches)
        assert all(torch.equal(a, b) for a, b in zip(plain, shaped, strict=True))
    other = train(bsrs.torchrl.shape(make(LOSSES[name]), eta=1.0), batches)
    assert not all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def test_saved_state_continues_with_the_same_eta() -> None:
    batches = [sampled_batch("CartPole-v1", 1)] * 40
    loss = make(dqn_loss)
    updater = HardUpdate(loss, value_network_update_interval=5)
    train(bsrs.torchrl.shape(loss, eta="auto", updater=updater), batches, updater)
    eta = loss.shaping.batches.metrics()["eta"]
    assert eta > 0
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    again = make(dqn_loss, seed=5)
    again = bsrs.torchrl.shape(again, eta="auto", updater=HardUpdate(again, value_network_update_interval=5))
    again.load_state_dict(torch.load(file, weights_only=True))
    out, out_again = loss(batches[0].clone()), again(batches[0].clone())
    assert float(out_again["shaping_eta"]) == float(out["shaping_eta"]) > 0
    assert float(out_again["loss"]) == float(out["loss"])
    assert again.shaping.step == loss.shaping.step == 41


def test_a_shaped_loss_is_copied() -> None:
    loss = bsrs.torchrl.shape(make(dqn_loss), eta=0.7)
    again = copy.deepcopy(loss)
    batch = sampled_batch("CartPole-v1", 1)
    assert again.shaping._parent[0] is again
    assert float(again(batch.clone())["loss"]) == float(loss(batch.clone())["loss"])


def test_a_schedule_that_ends_at_zero_is_reported() -> None:
    batch = sampled_batch("CartPole-v1", 1)
    loss = bsrs.torchrl.shape(make(dqn_loss), eta=Linear(1.0, 0.0, 2))
    outs = [loss(batch) for _ in range(4)]
    assert [float(out["shaping_eta"]) for out in outs] == [1.0, 0.5, 0.0, 0.0]
    assert [float(out["shaping_mean"]) == 0 for out in outs] == [False, False, True, True]


def test_hindsight_goals_are_shaped_at_the_relabelled_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    reward = lambda td: -(td["next", "achieved_goal"] - td["desired_goal"]).abs().sum(-1, keepdim=True)  # noqa: E731
    replay = HERReplayBuffer(reward_fn=reward, storage=LazyTensorStorage(200), batch_size=128)
    goals = {"desired_goal": torch.randn(20, 1).repeat_interleave(10, 0), "achieved_goal": torch.randn(200, 1)}
    done = (torch.arange(200) % 10 == 9)[:, None]
    follow = {"reward": torch.zeros(200, 1), "done": done, "terminated": done & (torch.rand(200, 1) < 0.5)}
    columns = {"observation": torch.randn(200, 3), "action": torch.randint(2, (200,)), **goals}
    columns["next"] = {"observation": torch.randn(200, 3), **goals, **follow}
    replay.extend(TensorDict(columns, batch_size=[200]))
    batch = replay.sample()
    assert not torch.isin(batch["desired_goal"], goals["desired_goal"]).all()

    keys = ["observation", "desired_goal"]
    network = QValueActor(MLP(in_features=4, out_features=2, num_cells=[32]), in_keys=keys, action_space="categorical")
    loss = bsrs.torchrl.shape(make(lambda: DQNLoss(network, action_space="categorical", delay_value=True)), eta=0.7)
    plain, shaped, _ = targets(loss, batch, monkeypatch)
    with torch.no_grad(), loss.value_network_params.to_module(loss.value_network):
        value, next_value = (
            loss.value_network(td.select(*keys))["action_value"].amax(-1) for td in (batch, batch["next"])
        )
    term = 0.7 * (GAMMA * ~batch["next", "terminated"].reshape(-1) * next_value - value)
    torch.testing.assert_close(shaped, plain + term, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["DQN", "DDPG", "TD3", "SAC"])
def test_priorities_are_the_shaped_td_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are two critics, TorchRL's priority is the larger error; SAC's is not squared."""
    batch = sampled_batch(env_of(name), 1)
    loss = bsrs.torchrl.shape(make(LOSSES[name]), eta=0.7)
    _, shaped, _ = targets(loss, batch, monkeypatch)
    network = loss.value_network if name in ("DQN", "DDPG") else loss.qvalue_network
    params = loss.value_network_params if name in ("DQN", "DDPG") else loss.qvalue_network_params
    errors = []
    for each in [params] if name in ("DQN", "DDPG") else [params[0], params[1]]:
        with torch.no_grad(), each.to_module(network):
            out = network(batch.select(*network.in_keys))
        if name == "DQN":
            q = out["action_value"].gather(-1, batch["action"].unsqueeze(-1))
        else:
            q = out["state_action_value"]
        errors.append((q.reshape(-1) - shaped).abs())
    error = torch.stack(errors).amax(0)
    expected = error if name == "SAC" else error.square()
    torch.testing.assert_close(batch["td_error"].reshape(-1), expected, atol=1e-4, rtol=1e-4)


def test_priority_weights_reach_the_shaped_loss() -> None:
    batch = sampled_batch("CartPole-v1", 1)
    weights = batch["priority_weight"] = torch.rand(128)
    out = bsrs.torchrl.shape(make(dqn_loss), eta=0.7)(batch)
    torch.testing.assert_close(out["loss"], (weights * batch["td_error"].reshape(-1)).sum() / weights.sum())


def test_schedules_and_state_dependent_eta(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = sampled_batch("CartPole-v1", 1)
    loss = bsrs.torchrl.shape(make(dqn_loss), eta=Linear(1.0, 0.0, 10))
    etas = [float(loss(batch)["shaping_eta"]) for _ in range(3)]
    assert etas == pytest.approx([1.0, 0.9, 0.8])
    loss.shaping.step = 5
    assert float(loss(batch)["shaping_eta"]) == pytest.approx(0.5)

    loss = bsrs.torchrl.shape(loss, eta=PerState(lambda obs: obs[:, 0].abs()))  # again: eta is replaced
    plain, shaped, _ = targets(loss, batch, monkeypatch)
    phi, next_phi = (td["observation"][:, 0].abs() * reference_value(loss, td) for td in (batch, batch["next"]))
    terminated = batch["next", "terminated"].reshape(-1)
    torch.testing.assert_close(shaped, plain + GAMMA * ~terminated * next_phi - phi, atol=1e-5, rtol=0)


def test_what_cannot_be_shaped_is_refused() -> None:
    with pytest.raises(BadInput, match="expected one of DDPGLoss, DQNLoss, SACLoss, TD3Loss"):
        bsrs.torchrl.shape(DistributionalDQNLoss)
    with pytest.raises(BadInput, match="updater=updater"):
        bsrs.torchrl.shape(make(dqn_loss), eta="auto")
    without_target = DQNLoss(copy.deepcopy(make(dqn_loss).value_network), action_space="categorical", delay_value=False)
    with pytest.raises(BadInput, match="needs a target network"):
        bsrs.torchrl.shape(without_target, eta="auto")
    loss = make(dqn_loss)
    loss.make_value_estimator(torchrl.objectives.ValueEstimators.TDLambda, gamma=GAMMA)
    with pytest.raises(BadInput, match="needs TD0"):
        bsrs.torchrl.shape(loss, eta=1.0)(sampled_batch("CartPole-v1", 1))


def test_cartpole_learns_by_the_docs_code_and_reports_raw_returns() -> None:
    torch.manual_seed(0)
    returns = run_page_code("TorchRL", steps="3_000")["returns"]
    assert (
        50 < sum(returns[-20:]) / 20 <= 500
    )  # a random policy scores 22; returns are sums of the env's rewards, all 1
