"""`bsrs.DQN`, `bsrs.TD3` and `bsrs.SAC`: one agent for people who write Python, trained, saved, loaded and applied."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from bsrs.agents.agent import Array
from bsrs.agents.targets import value_of
from bsrs.config.agents import DQNConfig
from bsrs.config.training import OffPolicyConfig, TrainingConfig
from bsrs.envs.defaults import default_preset, spec_of
from bsrs.envs.given import Env, Maker, env_name
from bsrs.errors import BadInput, say
from bsrs.export import Format, export_policy
from bsrs.rng import stream_seed
from bsrs.run import Records, make_agent
from bsrs.shaping import Shaping
from bsrs.store.read import checkpoint_step, read_config, read_metrics, read_model, read_result
from bsrs.store.run import Run
from bsrs.train import Loop, Outcome, Progress, evaluate


class Learner:
    """One agent: `learn`, `predict`, `evaluate`, `save`, `export`.

    Args:
        config: Its settings; `of` makes one for an env.
        shaping: Anything in place of config.eta.
        device: Where the networks live: cpu, cuda, cuda:1, ...
    """

    algorithm: ClassVar[str]

    def __init__(self, config: TrainingConfig, *, shaping: Shaping | None = None, device: str = "cpu") -> None:
        if config.algorithm != self.algorithm:
            raise BadInput(f"{type(self).__name__} got a config of {config.algorithm}")
        self.config = config
        self.agent: Any = make_agent([config], device, shaping)
        self.step = 0
        """Env steps that it was trained for."""
        self.records: list[dict[str, Any]] = []
        self.outcome: Outcome | None = None
        self._loaded_from: Path | None = None
        self._loaded: frozenset[str] = frozenset()

    @classmethod
    def of(cls, env: str | Env | Maker, **fields: Any) -> Self:
        """With the preset that suits `env`: an id, an env object, or a function that makes the env.

        Args:
            env: Training and evaluation need several copies. An object is copied; a function is called for each.
            fields: Settings in place of what the preset says, for example eta=0.5, steps=20_000.
        """
        return cls(default_preset(cls.algorithm, env_name(env), **fields))

    @classmethod
    def load(
        cls, folder: str | Path, *, env: str | Env | Maker | None = None, trust: bool = False, device: str = "cpu"
    ) -> Self:
        """The agent of a run's folder, whoever made it: `bsrs train`, `bsrs sweep` or `save`.

        Args:
            folder: Of the run.
            env: In place of the env that the run names; needed where that was a Python object.
            trust: Whether an env that the run names as MODULE:ID may import that module.
            device: Where the networks live.
        """
        folder = Path(folder)
        config, model = read_model(folder, trust=trust or env is not None)
        if env is not None:
            config = dataclasses.replace(config, env=env_name(env))
        learner = cls(config, device=device)
        learner.agent.load_policy(0, model)
        learner.step = int((read_result(folder) or {}).get("step") or checkpoint_step(folder))
        learner.records = [line for line in read_metrics(folder) if line["step"] <= learner.step]
        learner._loaded_from, learner._loaded = folder, frozenset(model.tensors)
        return learner

    def learn(self, steps: int | None = None, *, progress: Progress | None = None) -> Self:
        """Train for `steps` more env steps, by default as many as the config says; `records` has the records.

        A second call, or one after `load`, continues from the weights there are: the step count continues, so that
        schedules do not start again. For checkpoints while training use `bsrs train`.
        """
        steps = self.config.steps if steps is None else steps
        config = dataclasses.replace(self.config, steps=self.step + steps)
        loop = Loop(self.agent, config, [config.seed], [Records(self.records)])
        began, updates_from = self.step, self._go_on(loop) if self.step else 0
        outcome = loop.run(progress=progress, updates_from=updates_from)[0]
        reason = outcome.reason or (f"continued at step {began:,}" if began else "")
        self.outcome = dataclasses.replace(outcome, reason=reason)
        self.step, self._loaded_from = outcome.step, None
        return self

    def _go_on(self, loop: Loop) -> int:
        """Continue at today's step, in episodes not seen before; the first step at which to learn."""
        loop.step = self.step
        loop.members[0].envs.seed = stream_seed(self.config.seed, "continued", self.step)
        fill = getattr(self.config, "learning_starts", 0) if self._loaded_from else 0
        whose = f" of {self._loaded_from}" if self._loaded_from else ""
        note = f"; the replay was not saved, so {fill:,} steps fill it first" if fill else ""
        say(f"training continues from the weights{whose} at step {self.step:,}{note}")
        return self.step + fill

    def predict(self, obs: Any) -> Any:
        """The greedy action for one observation of the env, or the actions for a batch of them."""
        batch, single = self._batch(obs)
        actions = self.agent.greedy(batch[None])[0] + spec_of(self.config.env).first_action
        return actions[0] if single else actions

    def evaluate(self, episodes: int = 20) -> list[float]:
        """Raw scores of greedy episodes."""
        return evaluate(self.agent, dataclasses.replace(self.config, eval_episodes=episodes), [self.config.seed])[0]

    def save(self, folder: str | Path) -> None:
        """Write a run's folder, for `load` and for `bsrs play`, `export`, `runs` and `report`."""
        if self.outcome is None:
            raise BadInput("there is nothing to save that was not loaded; expected a call of learn first")
        run = Run(Path(folder), dataclasses.replace(self.config, steps=self.step))
        try:
            for line in self.records:
                run.append(line)
            run.finish(self.outcome, self.agent.policy(0))
        finally:
            run.close()

    def export(self, path: str | Path, format: Format = "onnx") -> str:
        """Write the greedy policy with its preprocessing as an ONNX or TorchScript file, checked on 1,000 observations;
        what was checked, in a sentence."""
        return export_policy(self.agent, spec_of(self.config.env), Path(path), format)

    def _batch(self, obs: Any) -> tuple[Array, bool]:
        read = spec_of(self.config.env).observations
        assert read is not None
        return read.batch(obs)


class DQN(Learner):
    """Self-shaped DQN: `DQN.of("CartPole-v1", eta=0.5).learn()`."""

    algorithm = "dqn"
    config: DQNConfig

    def q_values(self, obs: Any) -> Array:
        """Q of every action: (A,) for one observation, (B, A) for a batch. A shaped agent's are 1 / (1 + eta) of V,
        with the differences between actions unscaled."""
        batch, single = self._batch(obs)
        q: Array = self.agent.q_values(batch[None])[0]
        return q[0] if single else q

    def value(self, obs: Any) -> Any:
        """V(s): the largest Q, or its soft version where the config has a temperature."""
        return value_of(torch.from_numpy(self.q_values(obs)), self.config.temperature).numpy()[()]


class ActorCritic(Learner):
    """What TD3 and SAC can do beyond every `Learner`."""

    config: OffPolicyConfig

    def learn(self, steps: int | None = None, *, progress: Progress | None = None) -> Self:
        self._require_critics()
        return super().learn(steps, progress=progress)

    def q_values(self, obs: Any, action: Any = None) -> Array:
        """Q of every critic, (critics,) or (B, critics), at `action` in the env's units, by default the policy's."""
        self._require_critics()
        batch, single = self._batch(obs)
        if action is None:
            actions = self.agent.greedy(batch[None])
        else:
            actions = np.reshape(np.asarray(action, np.float32), (1, len(batch), -1))
        q: Array = self.agent.q_values(batch[None], actions)[0].T
        return q[0] if single else q

    def value(self, obs: Any) -> Any:
        """The smallest Q at the policy's own action; of SAC without the entropy."""
        return self.q_values(obs).min(axis=-1)

    def _require_critics(self) -> None:
        if self._loaded and not any(name.startswith("critics/") for name in self._loaded):
            raise BadInput("the run was saved by an older version, without its critics; expected one trained since")


class TD3(ActorCritic):
    """Self-shaped TD3: `TD3.of("Pendulum-v1", eta=1.0).learn()`."""

    algorithm = "td3"


class SAC(ActorCritic):
    """Self-shaped SAC: `SAC.of("Pendulum-v1", eta=1.0).learn()`."""

    algorithm = "sac"


def load(folder: str | Path, **options: Any) -> Learner:
    """The agent of a run's folder, whatever its algorithm; options as of `Learner.load`."""
    algorithm = read_config(Path(folder)).algorithm
    classes: dict[str, type[Learner]] = {cls.algorithm: cls for cls in (DQN, TD3, SAC)}
    if algorithm not in classes:
        raise BadInput(f"{folder} is a run of {algorithm}; expected one of {', '.join(classes)}")
    return classes[algorithm].load(folder, **options)
