"""`bsrs.DQN`, `bsrs.TD3` and `bsrs.SAC`: train, save, load and use one agent from Python."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from bsrs.agents.agent import Array, State
from bsrs.agents.networks import Factory, network_name
from bsrs.agents.targets import state_value
from bsrs.config.agents import DQNConfig
from bsrs.config.training import OffPolicyConfig, TrainingConfig
from bsrs.envs.checking import check_env
from bsrs.envs.defaults import default_preset, spec_of
from bsrs.envs.given import Env, Maker, env_name, with_settings
from bsrs.errors import BadInput, say
from bsrs.export import Format, export_policy
from bsrs.potentials import potential_setting
from bsrs.rng import stream_seed
from bsrs.run import Records, engine_of, make_agent
from bsrs.scales import scale_setting
from bsrs.shaping import BOOTSTRAPPED, Shaping
from bsrs.store.read import checkpoint_step, pick_run, read_config, read_metrics, read_model, read_result
from bsrs.store.run import Run
from bsrs.train import Loop, Outcome, Progress, evaluate

Callback = Callable[["Learner", dict[str, Any]], bool | None]


class _Stopped(Exception):
    """The callback said that it is enough."""


class _Watched(Records):
    """Records that a callback sees, too."""

    def __init__(self, learner: "Learner", callback: Callback | None) -> None:
        super().__init__(learner.records)
        self._learner, self._callback = learner, callback

    def append(self, line: dict[str, Any]) -> None:
        super().append(line)
        self._learner.step = line["step"]
        if self._callback is not None and self._callback(self._learner, line) is False:
            raise _Stopped


class Learner:
    """One agent: `learn`, `predict`, `evaluate`, `save`, `export`.

    Args:
        config: Settings of the agent. `of` builds them from a preset.
        shaping: A `Shaping` that replaces eta and potential of the config. It is recorded by import path and arguments.
        device: Device to train on: cpu, cuda, cuda:1, ...
        kernels: Whether to use compiled gradient steps if available.
    """

    algorithm: ClassVar[str]
    factories: ClassVar[tuple[str, ...]] = ()
    """The settings that name networks."""

    def __init__(
        self, config: TrainingConfig, *, shaping: Shaping | None = None, device: str = "cpu", kernels: bool = True
    ) -> None:
        if config.algorithm != self.algorithm:
            raise BadInput(f"{type(self).__name__} got a config of {config.algorithm}")
        if shaping is not None:
            config = dataclasses.replace(config, **_of_shaping(shaping))
        self.config = config
        self.agent: Any = make_agent([config], device, use_kernels=kernels)
        self.step = 0
        """Env steps trained so far."""
        self.records: list[dict[str, Any]] = []
        self.outcome: Outcome | None = None
        self._loaded_from: Path | None = None
        self._loaded: frozenset[str] = frozenset()
        self._policy_only = False

    @classmethod
    def of(
        cls, env: str | Env | Maker, *, eta: Any = None, potential: Any = None, shaping: Shaping | None = None,
        env_kwargs: Mapping[str, Any] | None = None, device: str = "cpu", kernels: bool = True, **fields: Any,
    ) -> Self:  # fmt: skip
        """Create an agent with the preset that suits the env.

        Args:
            env: An env id, an env object, or a function or class that makes the env. Training and evaluation need
                several copies: an object is copied, a function is called for each.
            eta: A number, text such as "auto", a `ShapeScale` or its class, or a function of the step, the state, or
                both.
            potential: A potential to use instead of V: an object, its class, or a function of the state.
            shaping: A `Shaping` to use instead of eta and potential.
            env_kwargs: Arguments for the env's constructor, if env is an id.
            device: Device to train on: cpu, cuda, cuda:1, ...
            kernels: Whether to use compiled gradient steps if available.
            fields: Settings that replace those of the preset, for example steps=20_000. `network` of DQN, and `actor`
                and `critic` of TD3 and SAC, may be functions that make an `nn.Module`.
        """
        if shaping is not None and (eta is not None or potential is not None):
            raise BadInput("shaping says what eta and potential are; expected it alone, or eta and potential")
        given = {"eta": eta, "potential": potential} if shaping is None else _of_shaping(shaping)
        name = env_name(with_settings(env, env_kwargs or {}))
        config = default_preset(cls.algorithm, name, **cls._named({**given, **fields}))
        return cls(config, device=device, kernels=kernels)

    @classmethod
    def _named(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Settings as a config holds them: your own objects by name; without those that are None."""
        names: dict[str, Callable[[Any], Any]] = {"eta": scale_setting, "potential": potential_setting}
        names |= dict.fromkeys(cls.factories, network_name)
        return {key: names[key](value) if key in names else value for key, value in given.items() if value is not None}

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        env: str | Env | Maker | None = None,
        trust: bool = False,
        device: str = "cpu",
        eta: Any = None,
        potential: Any = None,
        policy_only: bool = False,
        **networks: str | Factory,
    ) -> Self:
        """Load the agent of a run folder, whether `bsrs train`, `bsrs sweep` or `save` wrote it.

        Args:
            folder: Path to the run folder.
            env: An env that replaces the run's. Required if the run's env was a Python object.
            trust: Whether to import the modules that the run names as MODULE:NAME, for its env, eta, potential or
                networks.
            device: Device for the networks.
            eta: An eta that replaces the run's. Required if the run's eta was a Python object.
            potential: A potential that replaces the run's. Required if the run's potential was a Python object.
            policy_only: Load only what is needed to act. Such an agent cannot learn.
            networks: `network`, `actor` or `critic` that replace the run's. Required if they were Python objects.
        """
        folder = Path(folder)
        if unknown_names := set(networks) - set(cls.factories):
            raise BadInput(f"load got {min(unknown_names)}; expected one of {', '.join(cls.factories) or 'no network'}")
        given = cls._named({"eta": eta, "potential": potential, **networks})
        given |= {} if env is None else {"env": env_name(env)}
        config, model = read_model(folder, trust=trust, replace=given, policy_only=policy_only)
        recorded = read_config(folder).eta
        if config.eta != recorded and not policy_only:
            say(f"{folder} was trained with eta {recorded}; training would continue with eta {config.eta}")
        learner = cls(config, device=device, kernels=not policy_only)
        learner._policy_only = policy_only
        learner._load_model(folder, model)
        return learner

    def _load_model(self, folder: Path, model: State) -> None:
        try:
            self.agent.load_policy(0, model)
        except ValueError as error:
            raise BadInput(f"the model of {folder} does not fit: {error}") from None
        self.step = int((read_result(folder) or {}).get("step") or checkpoint_step(folder))
        self.records = [line for line in read_metrics(folder) if line["step"] <= self.step]
        self._loaded_from, self._loaded = folder, frozenset(model.tensors)

    def __repr__(self) -> str:
        """Return the main settings and the progress."""
        scores = [line["score"] for line in self.records if line["kind"] == "eval"]
        how_far = f"trained for {self.step:,} steps" if self.step else "not trained"
        score = f", score {scores[-1]:.2f}" if scores else ""
        config = self.config
        return f"<{type(self).__name__} on {config.env}, eta {config.eta}, seed {config.seed}: {how_far}{score}>"

    def learn(
        self, steps: int | None = None, *, callback: Callback | None = None, progress: Progress | None = None
    ) -> Self:
        """Train for `steps` more env steps, by default as many as the config says. `records` collects the records.

        `callback(agent, record)` is called with every record, a dict with its kind, step and numbers. Training stops
        if it returns False.

        A second call, or one after `load`, continues from the current weights and step, so schedules do not restart.
        For checkpoints during training use `bsrs train`.
        """
        self._check_can_learn()
        steps = self.config.steps if steps is None else steps
        config = dataclasses.replace(self.config, steps=self.step + steps)
        loop = Loop(self.agent, config, [config.seed], [_Watched(self, callback)])
        began, updates_from = self.step, self._go_on(loop, steps) if self.step else 0
        try:
            outcome = loop.run(progress=progress, updates_from=updates_from)[0]
        except _Stopped:
            scores = [line["score"] for line in self.records if line["kind"] == "eval"]
            outcome = Outcome("finished", loop.step, scores[-1] if scores else None, "the callback ended it")
        reason = outcome.reason or (f"continued at step {began:,}" if began else "")
        self.outcome = dataclasses.replace(outcome, reason=reason)
        self.step, self._loaded_from = outcome.step, None
        return self

    def _check_can_learn(self) -> None:
        if self._policy_only:
            raise BadInput(
                "the agent was loaded with policy_only=True, without its shaping; load it without that to learn"
            )
        check_env(self.config.env)

    def _go_on(self, loop: Loop, steps: int) -> int:
        """Continue at today's step, in episodes not seen before; the first step at which to learn."""
        loop.step = self.step
        loop.members[0].envs.seed = stream_seed(self.config.seed, "continued", self.step)
        fill = getattr(self.config, "learning_starts", 0) if self._loaded_from else 0
        whose = f" of {self._loaded_from}" if self._loaded_from else ""
        note = f"; the replay was not saved, so {fill:,} steps fill it first" if fill else ""
        say(f"training continues from the weights{whose} at step {self.step:,}{note}")
        if fill >= steps:
            say(
                f"no update will happen in these {steps:,} steps, because all of them fill the replay; learn for longer"
            )
        return self.step + fill

    def predict(self, obs: Any, *, deterministic: bool = True) -> Any:
        """Return the greedy action for one observation, or the actions for a batch.

        With deterministic=False, act as in training at this step, with exploration.
        """
        batch, single = self._batch(obs)
        actions = self.agent.greedy(batch[None])[0] if deterministic else self._explored(batch)
        if not np.isfinite(actions).all():
            raise BadInput(
                "the policy's actions are not finite: its training diverged, or the observation is not finite"
            )
        own = spec_of(self.config.env).own_actions(actions)
        return own[0] if single else own

    def _explored(self, batch: Array) -> Array:
        """An action with exploration for each observation; the agent takes as many at once as it has envs."""
        step = max(self.step, getattr(self.config, "learning_starts", 0))
        each = [np.repeat(one[None, None], self.config.n_envs, axis=1) for one in batch]  # (1, n, *obs)
        return np.stack([self.agent.act(obs, step)[0, 0] for obs in each])

    def evaluate(self, episodes: int = 20) -> list[float]:
        """Play greedy episodes and return their raw scores."""
        return evaluate(self.agent, dataclasses.replace(self.config, eval_episodes=episodes), [self.config.seed])[0]

    def save(self, folder: str | Path) -> None:
        """Write a run folder, for `load` and for `bsrs play`, `export`, `runs` and `report`."""
        if self.outcome is None:
            raise BadInput("there is nothing to save that was not loaded; expected a call of learn first")
        run = Run(Path(folder), dataclasses.replace(self.config, steps=self.step))
        try:
            for line in self.records:
                run.append(line)
            run.engine = engine_of(self.agent)
            run.finish(self.outcome, self.agent.policy(0))
        finally:
            run.close()

    def export(self, path: str | Path, format: Format = "onnx") -> str:
        """Write the greedy policy with its preprocessing to an ONNX or TorchScript file.

        The file's actions are compared with the agent's on 1,000 observations. Returns a line with the result.
        """
        return export_policy(self.agent, spec_of(self.config.env), Path(path), format)

    def _batch(self, obs: Any) -> tuple[Array, bool]:
        read = spec_of(self.config.env).observations
        assert read is not None
        return read.batch(obs)


def _of_shaping(shaping: Shaping) -> dict[str, Any]:
    """The settings eta and potential that say the same."""
    if not isinstance(shaping, Shaping):
        raise BadInput(f"shaping is a {type(shaping).__name__}; expected a Shaping, or eta=... for a shape-scale")
    potential = potential_setting(shaping.potential)
    return {"eta": scale_setting(shaping.eta)} | ({} if potential == BOOTSTRAPPED else {"potential": potential})


class DQN(Learner):
    """DQN with bootstrapped reward shaping, for example `DQN.of("CartPole-v1", eta=0.5).learn()`."""

    algorithm = "dqn"
    factories = ("network",)
    config: DQNConfig

    def q_values(self, obs: Any) -> Array:
        """Return Q of every action: (A,) for one observation, (B, A) for a batch.

        For a shaped agent, V is scaled by 1 / (1 + eta); the differences between actions are not.
        """
        batch, single = self._batch(obs)
        q: Array = self.agent.q_values(batch[None])[0]
        return q[0] if single else q

    def value(self, obs: Any) -> Any:
        """Return V(s): the largest Q, or the soft maximum if the config has a temperature."""
        return state_value(torch.from_numpy(self.q_values(obs)), self.config.temperature).numpy()[()]


class ActorCritic(Learner):
    """What TD3 and SAC can do beyond every `Learner`."""

    factories = ("actor", "critic")
    config: OffPolicyConfig

    def _check_can_learn(self) -> None:
        super()._check_can_learn()
        self._require_critics()

    def q_values(self, obs: Any, action: Any = None) -> Array:
        """Return Q of every critic, (critics,) or (B, critics), at `action` in env units, by default the policy's."""
        self._require_critics()
        batch, single = self._batch(obs)
        if action is None:
            actions = self.agent.greedy(batch[None])
        else:
            actions = np.reshape(np.asarray(action, np.float32), (1, len(batch), -1))
        q: Array = self.agent.q_values(batch[None], actions)[0].T
        return q[0] if single else q

    def value(self, obs: Any) -> Any:
        """Return the smallest Q at the policy's own action; for SAC, without the entropy."""
        return self.q_values(obs).min(axis=-1)

    def _require_critics(self) -> None:
        if self._loaded and not any(name.startswith("critics/") for name in self._loaded):
            raise BadInput("the run was saved by an older version, without its critics; expected one trained since")


class TD3(ActorCritic):
    """TD3 with bootstrapped reward shaping, for example `TD3.of("Pendulum-v1", eta=1.0).learn()`."""

    algorithm = "td3"


class SAC(ActorCritic):
    """SAC with bootstrapped reward shaping, for example `SAC.of("Pendulum-v1", eta=1.0).learn()`."""

    algorithm = "sac"


def load(folder: str | Path, **options: Any) -> Learner:
    """Load the agent of a run folder, whatever its algorithm. Takes the options of `DQN.load`.

    In a folder with several runs, such as a sweep's, `eta` and `seed` choose one.
    """
    if not (Path(folder) / "config.json").exists() and Path(folder).is_dir():
        eta = None if options.get("eta") is None else scale_setting(options.pop("eta"))
        folder = pick_run(Path(folder), eta, options.pop("seed", None))
    algorithm = read_config(Path(folder)).algorithm
    classes: dict[str, type[Learner]] = {cls.algorithm: cls for cls in (DQN, TD3, SAC)}
    if algorithm not in classes:
        raise BadInput(f"{folder} is a run of {algorithm}; expected one of {', '.join(classes)}")
    return classes[algorithm].load(folder, **options)
