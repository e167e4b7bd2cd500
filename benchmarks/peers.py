"""Agents of Stable-Baselines3 and SBX with our settings in their words, and with our networks."""

import os
from typing import Any

from bsrs.config.agents import ActorCriticConfig, DQNConfig
from bsrs.config.training import OffPolicyConfig
from bsrs.errors import optional

_SAME_NAME = (
    "batch_size",
    "buffer_size",
    "gamma",
    "gradient_steps",
    "learning_rate",
    "learning_starts",
    "train_freq",
)
_OF_ALGORITHM = {
    "dqn": ("target_update_interval", "max_grad_norm", "exploration_initial_eps", "exploration_final_eps"),
    "td3": ("tau", "policy_delay", "target_policy_noise", "target_noise_clip"),
    "sac": ("tau",),
}


def sb3_model(algorithm: str, config: OffPolicyConfig) -> Any:
    """Stable-Baselines3's model, ready to `learn`."""
    made = getattr(optional("stable_baselines3", "python -m benchmarks", "sb3"), algorithm.upper())
    settings = settings_of(algorithm, config)
    policy, policy_kwargs = "MlpPolicy", dict[str, Any](net_arch=list(config.hidden))
    if isinstance(config, ActorCriticConfig):
        policy_kwargs["n_critics"] = config.n_critics
    if config.env.startswith("MinAtar"):
        policy_kwargs = {"net_arch": [], "features_extractor_class": _minatar_network()}
    elif "NoFrameskip" in config.env:
        policy, policy_kwargs = "CnnPolicy", {}
    made_env = sb3_env(config.env, seed=config.seed)
    return made(policy, made_env, **settings, policy_kwargs=policy_kwargs, device="cpu", seed=config.seed)


def sbx_model(algorithm: str, config: OffPolicyConfig) -> Any:
    """SBX's model, ready to `learn`, on one thread."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # before JAX starts
    made = getattr(optional("sbx", "python -m benchmarks", "sbx"), algorithm.upper())
    settings = settings_of(algorithm, config)
    settings.pop("max_grad_norm", None)  # it does not clip
    kwargs = dict[str, Any](net_arch=list(config.hidden))
    return made("MlpPolicy", sb3_env(config.env, seed=config.seed), **settings, policy_kwargs=kwargs, seed=config.seed)


def settings_of(algorithm: str, config: OffPolicyConfig) -> dict[str, Any]:
    """The settings that the peers have too."""
    settings = {name: getattr(config, name) for name in (*_SAME_NAME, *_OF_ALGORITHM[algorithm])}
    if isinstance(config, DQNConfig):
        settings["exploration_fraction"] = max(config.exploration_fraction, 1e-9)  # it divides by it
    return settings


def sb3_env(env: str, *, n_envs: int = 1, seed: int) -> Any:
    """Stable-Baselines3's own env, as the model takes it."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if env.startswith("MinAtar"):
        return make_vec_env(lambda: _minatar(env), n_envs, seed)
    if "NoFrameskip" in env:
        import ale_py  # noqa: F401  registers the games

        return VecFrameStack(make_atari_env(env, n_envs, seed), n_stack=4)
    return make_vec_env(env, n_envs, seed)


def _minatar(env: str) -> Any:
    """MinAtar's own Gymnasium env, with the channels first, as PyTorch has them."""
    import gymnasium
    import numpy as np
    from minatar.gym import register_envs

    if env not in gymnasium.registry:
        register_envs()
    made = gymnasium.make(env, disable_env_checker=True)
    height, width, channels = made.observation_space.shape
    space = gymnasium.spaces.Box(0, 1, (channels, height, width), np.uint8)
    return gymnasium.wrappers.TransformObservation(
        made, lambda obs: obs.transpose(2, 0, 1).astype(np.uint8), observation_space=space
    )


def _minatar_network() -> Any:
    """The network of Young and Tian (2019) up to its last layer."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    from bsrs.agents.networks import CONVOLUTIONS

    ((filters, kernel, stride),), hidden = CONVOLUTIONS["minatar"]

    class Features(BaseFeaturesExtractor):  # type: ignore[misc]
        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, hidden)
            channels, height, width = observation_space.shape
            side = [(length - kernel) // stride + 1 for length in (height, width)]
            self.network = nn.Sequential(
                nn.Conv2d(channels, filters, kernel, stride),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(filters * side[0] * side[1], hidden),
                nn.ReLU(),
            )

        def forward(self, obs: Any) -> Any:
            return self.network(obs)

    return Features
