"""`bsrs.DQN`, `bsrs.TD3` and `bsrs.SAC`: one agent for people who write Python, trained, saved, loaded and applied."""

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
        config: Its settings; `of` makes one for an env.
        shaping: A `Shaping` in place of what the config says. It is recorded by import path and arguments.
        device: Where the networks live: cpu, cuda, cuda:1, ...
        kernels: Whether to use compiled gradient steps where there are any.
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
        """Env steps that it was trained for."""
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
        """Make one with the preset that suits `env`: an id, an env object, or a function that makes the env.

        Args:
            env: Training and evaluation need several copies. An object is copied; a function is called for each.
            eta: The shape-scale: a number, text such as "auto", a `ShapeScale` or its class, or a function of the step,
                the state, or both.
            potential: What eta scales in place of V: a potential or its class, or a function of the state.
            shaping: A `Shaping` in place of eta and potential.
            env_kwargs: Settings that the env's maker takes, for an id.
            device: Where the networks live.
            kernels: Whether to use compiled gradient steps where there are any.
            fields: Settings in place of what the preset says, for example steps=20_000. `network` of DQN, `actor` and
                `critic` of TD3 and SAC may be functions that make an `nn.Module`.
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
            env: In place of the env that the run names; needed where that was a Python object.
            trust: Whether an env, an eta, a potential or a network that the run names as MODULE:NAME may import that
                module.
            device: Where the networks live.
            eta: In place of the eta that the run names; needed where that was a Python object.
            potential: Likewise.
            policy_only: Leave out what shaped the training: enough to act, not to learn.
            networks: `network`, `actor` or `critic` in place of those that the run names; needed where that was a
                Python object.
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
        """The settings that matter most, and how far it is."""
        scores = [line["score"] for line in self.records if line["kind"] == "eval"]
        how_far = f"trained for {self.step:,} steps" if self.step else "not trained"
        score = f", score {scores[-1]:.2f}" if scores else ""
        config = self.config
        return f"<{type(self).__name__} on {config.env}, eta {config.eta}, seed {config.seed}: {how_far}{score}>"

    def learn(
        self, steps: int | None = None, *, callback: Callback | None = None, progress: Progress | None = None
    ) -> Self:
        """Train for `steps` more env steps, by default as many as the config says; `records` has the records.

        `callback(agent, record)` is called with every record, a dict with its kind, step and numbers; training ends
        where it returns False.

        A second call, or one after `load`, continues from the weights there are: the step count continues, so that
        schedules do not start again. For checkpoints while training use `bsrs train`.
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
        """The greedy action for one observation of the env, or the actions for a batch of them.

        With deterministic=False the action is chosen as in training at this step, with its exploration.
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
            run.engine = engine_of(self.agent)
            run.finish(self.outcome, self.agent.policy(0))
        finally:
            run.close()

    def export(self, path: str | Path, format: Format = "onnx") -> str:
        """Write the greedy policy with its preprocessing as an ONNX or TorchScript file, checked on 1,000 observations;
        a line about what was checked."""
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
    """Self-shaped DQN: `DQN.of("CartPole-v1", eta=0.5).learn()`."""

    algorithm = "dqn"
    factories = ("network",)
    config: DQNConfig

    def q_values(self, obs: Any) -> Array:
        """Q of every action: (A,) for one observation, (B, A) for a batch. A shaped agent's are 1 / (1 + eta) of V,
        with the differences between actions unscaled."""
        batch, single = self._batch(obs)
        q: Array = self.agent.q_values(batch[None])[0]
        return q[0] if single else q

    def value(self, obs: Any) -> Any:
        """V(s): the largest Q, or its soft version where the config has a temperature."""
        return state_value(torch.from_numpy(self.q_values(obs)), self.config.temperature).numpy()[()]


class ActorCritic(Learner):
    """What TD3 and SAC can do beyond every `Learner`."""

    factories = ("actor", "critic")
    config: OffPolicyConfig

    def _check_can_learn(self) -> None:
        super()._check_can_learn()
        self._require_critics()

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
    """The agent of a run's folder, whatever its algorithm; options as of `Learner.load`.

    Of a folder with several runs, such as a sweep's, `eta` and `seed` say which.
    """
    if not (Path(folder) / "config.json").exists() and Path(folder).is_dir():
        eta = None if options.get("eta") is None else scale_setting(options.pop("eta"))
        folder = pick_run(Path(folder), eta, options.pop("seed", None))
    algorithm = read_config(Path(folder)).algorithm
    classes: dict[str, type[Learner]] = {cls.algorithm: cls for cls in (DQN, TD3, SAC)}
    if algorithm not in classes:
        raise BadInput(f"{folder} is a run of {algorithm}; expected one of {', '.join(classes)}")
    return classes[algorithm].load(folder, **options)
