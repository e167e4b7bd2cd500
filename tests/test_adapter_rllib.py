"""RLlib: rewards equal the formula from the module's own networks, eta = 0 changes nothing, state is in checkpoints.

The tests of one Learner need no Ray: an env runner, a replay buffer and a Learner are called directly.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("ray.rllib")

from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

import bsrs.rllib
from bsrs import BadInput, Linear, PerState
from bsrs.adapting import separate_rng

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's and Gymnasium's warnings about themselves

GAMMA, SIZE = 0.97, 256


def make_config(name: str, n_step: Any = 1) -> Any:
    """Two envs, normalised observations, prioritised replay, short episodes."""
    config = SACConfig() if "SAC" in name else DQNConfig()
    config.environment(env_of(name), env_config={"max_episode_steps": 18})
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2, explore=True)
    config.env_runners(env_to_module_connector=lambda *_, **__: MeanStdFilter())
    config.training(n_step=n_step, train_batch_size_per_learner=SIZE, gamma=GAMMA, target_network_update_freq=5)
    if name == "DQN, not double":
        config.training(double_q=False)
    return config.rl_module(model_config={"fcnet_hiddens": [32], "head_fcnet_hiddens": [16]})


NAMES = ["DQN", "DQN, not double", "SAC", "discrete SAC"]


def env_of(name: str) -> str:
    return "Pendulum-v1" if name == "SAC" else "CartPole-v1"


@pytest.fixture(scope="module")
def episodes() -> Any:
    """What an env runner sampled, for each env; Pendulum's ends are made terminal now and then."""
    sampled: dict[str, Any] = {}

    def sample(name: str, n_step: Any = 1) -> Any:
        env = env_of(name)
        if env not in sampled:
            runner = SingleAgentEnvRunner(config=make_config(name).debugging(seed=1))
            sampled[env] = runner.sample(num_timesteps=400, random_actions=True)
            runner.stop()
            for episode in sampled[env][::2] if env == "Pendulum-v1" else []:
                episode.is_truncated, episode.is_terminated = False, True
        buffer = PrioritizedEpisodeReplayBuffer(capacity=1000)
        buffer.rng = np.random.default_rng(3)
        buffer.add(sampled[env])
        return buffer.sample(num_items=SIZE, n_step=n_step, gamma=GAMMA, beta=0.4, sample_episodes=True)

    return sample


def make(name: str, n_step: Any = 1, seed: int = 0, **shaping: Any) -> Any:
    """A Learner with target networks that differ from the online ones; without `eta`, RLlib's own."""
    torch.manual_seed(seed)
    config = make_config(name, n_step)
    config = bsrs.rllib.shape(config, **shaping) if shaping else config
    learner = config.build_learner(env=gym.make(env_of(name)))
    for parameter_name, parameter in module_of(learner).named_parameters():
        if "target" in parameter_name:
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return learner


def module_of(learner: Any) -> Any:
    return learner.module["default_policy"].unwrapped()


def update(learner: Any, episodes: Any, step: int = 100) -> dict[str, float]:
    torch.manual_seed(step)
    results = learner.update(episodes=episodes, timesteps={"num_env_steps_sampled_lifetime": step})
    return {name: float(stats.peek()) for name, stats in results["default_policy"].items() if "shaping" in name}


def freeze(learner: Any) -> None:
    """Keep the weights with which a batch is shaped."""
    learner.apply_gradients = learner.after_gradient_based_update = lambda *_, **__: None


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The batches that RLlib's own loss reads."""
    batches: list[dict[str, Any]] = []
    for cls in (DQNTorchLearner, SACTorchLearner):

        def record(self: Any, *, batch: Any, fwd_out: Any, loss: Any = cls.compute_loss_for_module, **rest: Any) -> Any:
            batches.append({**batch, "fwd_out": fwd_out})
            return loss(self, batch=batch, fwd_out=fwd_out, **rest)

        monkeypatch.setattr(cls, "compute_loss_for_module", record)
    return batches


def reference_values(name: str, learner: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """V(s) and V(s'), (B,), written out with the module's networks."""
    module = module_of(learner)

    def q(obs: torch.Tensor, *critics: str, **action: torch.Tensor) -> torch.Tensor:
        encoders = [(getattr(module, f"{c}_encoder"), getattr(module, c)) for c in critics]
        each = [head(encoder({"obs": obs, **action})["encoder_out"]) for encoder, head in encoders]
        return torch.stack(each).amin(0)

    def greedy(obs: torch.Tensor) -> torch.Tensor:
        features = module.encoder({"obs": obs})["encoder_out"]
        advantage = module.af(features)
        return (module.vf(features) + advantage - advantage.mean(-1, keepdim=True)).amax(-1)

    with torch.no_grad():
        obs, next_obs = batch["obs"], batch["new_obs"]
        if "DQN" in name:
            return greedy(obs), greedy(next_obs)
        alpha = learner.curr_log_alpha["default_policy"].exp()
        logits, next_logits = (module.pi(module.pi_encoder({"obs": o})["encoder_out"]) for o in (obs, next_obs))
        if name == "discrete SAC":
            both = [(q(o, "qf", "qf_twin"), each) for o, each in ((obs, logits), (next_obs, next_logits))]
            values = [(x.softmax(-1) * (q - alpha * x.log_softmax(-1))).sum(-1) for q, x in both]
            return values[0], values[1]
        with separate_rng(1):  # where the adapter draws its action at s'; at s it takes RLlib's
            action, logp = module.get_train_action_dist_cls().from_logits(next_logits).sample_and_logp()
        next_value = q(next_obs, "qf", "qf_twin", actions=action)[:, 0] - alpha * logp
        return batch["fwd_out"]["q_curr"] - alpha * batch["fwd_out"]["logp_resampled"], next_value


@pytest.mark.parametrize("n_step", [1, (1, 4)])  # RLlib leaves out the last n - 1 transitions of an episode
@pytest.mark.parametrize("name", NAMES)
def test_rewards_equal_the_formula(name: str, n_step: Any, episodes: Any, seen: Any) -> None:
    sampled = episodes(name, n_step)
    update(make(name, n_step, eta=0.0), sampled)
    learner = make(name, n_step, eta=0.7)
    freeze(learner)
    metrics = update(learner, sampled)
    plain, batch = seen
    value, next_value = reference_values(name, learner, batch)
    steps, terminated = batch["n_step"], batch["terminateds"]
    assert terminated.any()
    assert batch["truncateds"].any()
    assert n_step == 1 or set(steps.tolist()) == {1, 2, 3}
    term = 0.7 * (GAMMA**steps * ~terminated * next_value - value)
    torch.testing.assert_close(batch["rewards"], plain["rewards"] + term.float(), atol=1e-5, rtol=0)
    assert metrics["shaping_eta"] == pytest.approx(0.7)
    assert metrics["shaping_mean"] == pytest.approx(float(term.mean()), abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_auto_halves_the_reward_before_values_have_moved(name: str, episodes: Any, seen: Any) -> None:
    sampled = episodes(name)
    update(make(name, eta=0.0), sampled)
    learner = make(name, eta="auto")
    freeze(learner)
    assert update(learner, sampled)["shaping_eta"] == 0.0
    plain, batch = seen
    torch.testing.assert_close(batch["rewards"], plain["rewards"] / 2, atol=5e-3, rtol=2e-3)


@pytest.mark.parametrize("name", ["DQN", "SAC", "discrete SAC"])
def test_eta_zero_leaves_training_unchanged(name: str, episodes: Any) -> None:
    """At 1e-30 everything is computed and nothing is added: the library's random numbers stay the same too."""
    sampled = episodes(name)

    def train(**shaping: Any) -> list[torch.Tensor]:
        learner = make(name, **shaping)
        for step in range(100, 120, 5):
            update(learner, sampled, step)
        return [parameter.detach().clone() for parameter in module_of(learner).parameters()]

    plain = train()
    for eta in (0.0, 1e-30):
        assert all(torch.equal(a, b) for a, b in zip(plain, train(eta=eta), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(plain, train(eta=1.0), strict=True))


def test_a_checkpoint_continues_with_the_same_eta(episodes: Any, tmp_path: Path) -> None:
    sampled = episodes("DQN")
    learner = make("DQN", eta="auto")
    for step in range(100, 200, 5):
        metrics = update(learner, sampled, step)
    assert metrics["shaping_eta"] > 0
    learner.save_to_path(tmp_path)
    again = make("DQN", seed=5, eta="auto")
    again.restore_from_path(tmp_path)
    assert update(again, sampled, 200)["shaping_eta"] == update(learner, sampled, 200)["shaping_eta"]
    assert again.shaper("default_policy").updates == learner.shaper("default_policy").updates == 21


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_priorities_are_the_shaped_td_error(name: str, episodes: Any, seen: Any) -> None:
    """With two critics, RLlib's priority is the mean of their errors."""
    learner = make(name, eta=0.7)
    alpha = learner.curr_log_alpha["default_policy"].exp().detach().clone() if name == "SAC" else None
    torch.manual_seed(0)
    results = learner.update(episodes=episodes(name), timesteps={"num_env_steps_sampled_lifetime": 1})
    (batch,) = seen
    out = batch["fwd_out"]
    if name == "DQN":
        best = out["qf_next_preds"].argmax(-1, keepdim=True)
        bootstrap = out["qf_target_next_preds"].gather(-1, best)[:, 0]
        q = [out["qf_preds"].gather(-1, batch["actions"].long()[:, None])[:, 0]]
    else:
        bootstrap = out["q_target_next"] - alpha * out["logp_next_resampled"]
        q = [out["qf_preds"], out["qf_twin_preds"]]
    target = batch["rewards"] + GAMMA * ~batch["terminateds"] * bootstrap
    expected = torch.stack([(each - target).abs() for each in q]).mean(0)
    (errors,) = results["default_policy"]["td_error"].peek()
    torch.testing.assert_close(torch.as_tensor(errors), expected.detach())


def test_schedules_count_env_steps_and_eta_may_depend_on_the_state(episodes: Any, seen: Any) -> None:
    sampled = episodes("DQN")
    learner = make("DQN", eta=Linear(1.0, 0.0, 1000))
    assert [update(learner, sampled, step)["shaping_eta"] for step in (100, 500, 2000)] == [0.9, 0.5, 0.0]
    seen.clear()
    update(make("DQN", eta=0.0), sampled)
    learner = make("DQN", eta=PerState(lambda obs: obs[:, 0].abs()))
    freeze(learner)
    update(learner, sampled)
    plain, batch = seen
    value, next_value = reference_values("DQN", learner, batch)
    phi, next_phi = batch["obs"][:, 0].abs() * value, batch["new_obs"][:, 0].abs() * next_value
    expected = plain["rewards"] + GAMMA * ~batch["terminateds"] * next_phi - phi
    torch.testing.assert_close(batch["rewards"], expected, atol=1e-5, rtol=0)


def test_a_learner_of_your_own_is_shaped_if_it_inherits() -> None:
    class MyLearner(bsrs.rllib.ShapedDQN):
        pass

    config = bsrs.rllib.shape(DQNConfig().learners(learner_class=MyLearner), eta=0.5)
    assert config.learner_class is MyLearner
    assert config.learner_config_dict == {"bsrs_eta": 0.5}


def test_what_cannot_be_shaped_is_refused() -> None:
    class Other(DQNTorchLearner):
        pass

    with pytest.raises(BadInput, match="got the class DQNConfig; expected the config"):
        bsrs.rllib.shape(DQNConfig)
    for config in (PPOConfig(), DQNConfig().learners(learner_class=Other)):
        with pytest.raises(BadInput, match="expected RLlib's DQN or SAC"):
            bsrs.rllib.shape(config)
    old = DQNConfig().api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
    with pytest.raises(BadInput, match="old API stack"):
        bsrs.rllib.shape(old)
    with pytest.raises(BadInput, match="cannot be read"):
        bsrs.rllib.shape(DQNConfig(), eta="two")
    recurrent = make_config("DQN").rl_module(model_config={"use_lstm": True, "max_seq_len": 4})
    with pytest.raises(BadInput, match="recurrent module"):
        bsrs.rllib.shape(recurrent, eta=0.5).build_learner(env=gym.make("CartPole-v1"))
