"""The adapter to RLlib: `config = bsrs.rllib.shape(config, eta=0.5)`, for DQN and SAC on the new API stack.

The Learner shapes the rewards of each batch just before its loss reads them. Env runners, replay buffers and recorded
episode returns stay as they are, on one machine or on a Ray cluster. RLlib's checkpoints hold what eta has learned.
"""

from typing import Any

import torch
from torch import Tensor

from bsrs.adapting import BatchShaper, separate_rng
from bsrs.errors import BadInput, optional

optional("ray.rllib", "bsrs.rllib", "rllib")

from gymnasium.spaces import Discrete  # noqa: E402
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig  # noqa: E402
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS  # noqa: E402
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner  # noqa: E402
from ray.rllib.algorithms.sac.sac_learner import (  # noqa: E402
    ACTION_DIST_INPUTS_NEXT,
    ACTION_LOG_PROBS,
    ACTION_LOG_PROBS_NEXT,
    ACTION_PROBS,
    ACTION_PROBS_NEXT,
    QF_TARGET_NEXT,
    QF_TWIN_PREDS,
)
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402
from ray.rllib.core.learner.torch.torch_learner import TorchLearner  # noqa: E402
from ray.rllib.core.models.base import ENCODER_OUT  # noqa: E402
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME  # noqa: E402


def shape(config: Any, eta: Any = "auto") -> Any:
    """Shape the rewards that the algorithm of `config` learns from. Call it before `config.build_algo()`.

    Returns the config. `eta` is a number, "auto", a schedule over sampled env steps, or a function of the observations
    (`bsrs.shaping`). The Learner's results gain `shaping_eta` and `shaping_mean`. To shape your own Learner, inherit
    from `ShapedDQN` or `ShapedSAC`.
    """
    if not isinstance(config, AlgorithmConfig):
        found = f"the class {config.__name__}" if isinstance(config, type) else f"a {type(config).__name__}"
        raise BadInput(f"bsrs.rllib.shape got {found}; expected the config of an algorithm, such as DQNConfig()")
    if not config.enable_rl_module_and_learner:
        raise BadInput("the config uses RLlib's old API stack; expected the new one, with enable_rl_module_and_learner")
    BatchShaper(eta)  # so that an eta that cannot be read is found now, and not on the cluster
    learner = config.learner_class
    if not issubclass(learner, Shaped):
        if learner not in LEARNERS:
            raise BadInput(
                f"bsrs.rllib.shape got a config whose Learner is {learner.__name__}; expected RLlib's DQN or SAC,"
                " or a Learner of your own that inherits from bsrs.rllib.ShapedDQN or ShapedSAC"
            )
        learner = LEARNERS[learner]
    return config.learners(learner_class=learner, learner_config_dict={"bsrs_eta": eta})


class Shaped(TorchLearner):  # type: ignore[misc]
    """In front of a Learner class: shapes the rewards that its loss reads."""

    def build(self) -> None:
        if self._is_built:
            return
        self.shapers: dict[str, BatchShaper] = {}
        self.target_updates: dict[str, int] = {}
        self.step = 0
        super().build()
        if any(module.unwrapped().is_stateful() for module in self.module.values()):
            raise BadInput("bsrs.rllib got a recurrent module; expected one without a state")

    def shaper(self, module_id: str) -> BatchShaper:
        """Return the shaper of a module: several agents each have their own."""
        if module_id not in self.shapers:
            distributed = self.config.num_learners > 1
            self.shapers[module_id] = BatchShaper(self.config.learner_config_dict["bsrs_eta"], distributed=distributed)
        return self.shapers[module_id]

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        self.step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        super().before_gradient_based_update(timesteps=timesteps)

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        for module_id in self.shapers:  # the same condition as in RLlib's update of the target networks, which follows
            since = self.step - self.last_update_ts_by_mid[module_id]
            due = since >= self.config.get_config_for_module(module_id).target_network_update_freq
            self.target_updates[module_id] = self.target_updates.get(module_id, 0) + due
        super().after_gradient_based_update(timesteps=timesteps)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        shaper = self.shaper(module_id)
        shaper.step = self.step
        if shaper.is_active(self.step):
            reward = batch[Columns.REWARDS].float()
            batch = {**batch, Columns.REWARDS: reward + self._term(shaper, module_id, config, batch, fwd_out)}
        metrics = {f"shaping_{name}": number for name, number in shaper.metrics().items()}
        self.metrics.log_dict(metrics, key=module_id, window=1)
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)

    @torch.no_grad()
    def _term(self, shaper: BatchShaper, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Tensor:
        module = self.module[module_id].unwrapped()
        with separate_rng(shaper.updates + 1):
            value, next_value, bootstrap = self.batch_values(module_id, module, config, batch, fwd_out)
        term = shaper.term(
            value,
            next_value,
            reward=batch[Columns.REWARDS].to(value),
            gamma=config.gamma ** batch["n_step"].to(value),
            terminated=batch[Columns.TERMINATEDS],
            bootstrap=bootstrap,
            state=batch[Columns.OBS],
            next_state=batch[Columns.NEXT_OBS],
        )
        now, period = self.target_updates.get(module_id, 0), 1 / config.tau
        shaper.watch(batch[Columns.OBS], len(value), lambda obs: self.value(module_id, module, obs), now, period)
        return term

    def batch_values(
        self, module_id: str, module: Any, config: Any, batch: Any, fwd_out: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return V(s) and V(s') of the online networks, and V(s') as RLlib bootstraps from it; each (B,)."""
        raise NotImplementedError

    def value(self, module_id: str, module: Any, obs: Any) -> Tensor:
        """Return V of observations by the online networks, (B,)."""
        raise NotImplementedError

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> Any:
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component("bsrs", components, not_components):
            state["bsrs"] = {module_id: shaper.state() for module_id, shaper in self.shapers.items()}
        return state

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        for module_id, saved in state.get("bsrs", {}).items():
            self.shaper(module_id).load_state(saved)


class ShapedDQN(Shaped, DQNTorchLearner):  # type: ignore[misc]
    """RLlib's DQN Learner, shaped: V(s) = max_a Q(s, a)."""

    def batch_values(
        self, module_id: str, module: Any, config: Any, batch: Any, fwd_out: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        target = fwd_out[QF_TARGET_NEXT_PREDS]
        if not config.double_q:
            return fwd_out[QF_PREDS].amax(-1), self.value(module_id, module, batch[Columns.NEXT_OBS]), target.amax(-1)
        next_q = fwd_out[QF_NEXT_PREDS]
        bootstrap = target.gather(-1, next_q.argmax(-1, keepdim=True)).squeeze(-1)
        return fwd_out[QF_PREDS].amax(-1), next_q.amax(-1), bootstrap

    def value(self, module_id: str, module: Any, obs: Any) -> Tensor:
        q: Tensor = module.compute_q_values({Columns.OBS: obs})[QF_PREDS]
        return q.amax(-1)


class ShapedSAC(Shaped, SACTorchLearner):  # type: ignore[misc]
    """RLlib's SAC Learner, shaped: V(s) = min_i Q_i - alpha log pi, at a sampled action or in its expectation."""

    def batch_values(
        self, module_id: str, module: Any, config: Any, batch: Any, fwd_out: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        alpha, next_obs = self.curr_log_alpha[module_id].exp(), batch[Columns.NEXT_OBS]
        if isinstance(module.action_space, Discrete):
            q, next_logp = fwd_out[QF_PREDS], fwd_out[ACTION_LOG_PROBS_NEXT]
            q = torch.minimum(q, fwd_out[QF_TWIN_PREDS]) if config.twin_q else q
            next_q = module.compute_q_values({Columns.OBS: next_obs}, squeeze=False)
            return (
                (fwd_out[ACTION_PROBS] * (q - alpha * fwd_out[ACTION_LOG_PROBS])).sum(-1),
                (fwd_out[ACTION_PROBS_NEXT] * (next_q - alpha * next_logp)).sum(-1),
                (fwd_out[ACTION_PROBS_NEXT] * (fwd_out[QF_TARGET_NEXT] - alpha * next_logp)).sum(-1),
            )
        return (
            fwd_out["q_curr"] - alpha * fwd_out["logp_resampled"],
            _sampled_value(module, next_obs, fwd_out[ACTION_DIST_INPUTS_NEXT], alpha),
            fwd_out["q_target_next"] - alpha * fwd_out["logp_next_resampled"],
        )

    def value(self, module_id: str, module: Any, obs: Any) -> Tensor:
        alpha = self.curr_log_alpha[module_id].exp()
        logits = module.pi(module.pi_encoder({Columns.OBS: obs})[ENCODER_OUT])
        if not isinstance(module.action_space, Discrete):
            return _sampled_value(module, obs, logits, alpha)
        logp = logits.log_softmax(-1)
        q = module.compute_q_values({Columns.OBS: obs}, squeeze=False)
        value: Tensor = (logp.exp() * (q - alpha * logp)).sum(-1)
        return value


def _sampled_value(module: Any, obs: Any, logits: Tensor, alpha: Tensor) -> Tensor:
    """Return min_i Q_i(s, a) - alpha log pi(a | s) at one sampled action."""
    action, logp = module.get_train_action_dist_cls().from_logits(logits).sample_and_logp()
    value: Tensor = module.compute_q_values({Columns.OBS: obs, Columns.ACTIONS: action}) - alpha * logp
    return value


LEARNERS = {DQNTorchLearner: ShapedDQN, SACTorchLearner: ShapedSAC}
