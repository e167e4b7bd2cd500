"""The adapter to TorchRL: `loss = bsrs.torchrl.shape(loss, eta=0.5)`, for DQN, DDPG, TD3 and SAC losses.

The shaping term is added to the target that the loss's value estimator returns. Replay buffer, collector and recorded
episode returns stay as they are. `loss.state_dict()` holds what eta has learned.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bsrs.adapting import BatchShaper, Instead, ShapingModule, reader_for, separate_rng, shaped_class
from bsrs.errors import BadInput, optional

optional("torchrl", "bsrs.torchrl", "torchrl")

from torchrl.envs.utils import ExplorationType, set_exploration_type  # noqa: E402
from torchrl.objectives import DDPGLoss, DQNLoss, HardUpdate, SACLoss, SoftUpdate, TD3Loss  # noqa: E402
from torchrl.objectives.common import LossModule  # noqa: E402
from torchrl.objectives.value import TD0Estimator  # noqa: E402


def shape(loss: Any, eta: Any = "auto", *, updater: Any = None) -> Any:
    """Shape the targets of `loss` from now on. Call it again to change eta.

    Returns the loss. `eta` is a number, "auto", a schedule or a function of the state (`bsrs.shaping`). Schedules count
    gradient steps; to count frames instead, set `loss.shaping.step = frames` before each update. "auto" needs
    `updater`, the loss's `SoftUpdate` or `HardUpdate`. The loss's output gains `shaping_eta` and `shaping_mean`.
    """
    value = reader_for(loss, READERS, "torchrl")
    if isinstance(loss, SACLoss) and loss._version == 1:
        raise BadInput("bsrs.torchrl.shape got a SACLoss with a value network; expected SAC version 2, without one")
    shaping = LossShaping(loss, value, eta, _period(updater))
    loss.__class__ = shaped_class(Shaped, type(loss))
    loss.shaping = shaping
    return loss


def _period(updater: Any) -> float | None:
    """Return the target network's period, in gradient steps."""
    if isinstance(updater, HardUpdate):
        return float(updater.value_network_update_interval)
    if isinstance(updater, SoftUpdate):
        return 1 / max(1 - float(updater.eps), 1e-9)
    if updater is None:
        return None
    raise BadInput(f"updater is a {type(updater).__name__}; expected TorchRL's SoftUpdate or HardUpdate")


class Shaped(LossModule):  # type: ignore[misc]
    """In front of a loss class: its value estimator adds the shaping term."""

    shaping: "LossShaping"

    @property
    def value_estimator(self) -> Any:
        plain = LossModule.value_estimator.fget(self)
        return Instead(plain, value_estimate=partial(self.shaping.value_estimate, plain))

    @value_estimator.setter
    def value_estimator(self, estimator: Any) -> None:
        self._value_estimator = estimator

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out = super().forward(*args, **kwargs)
        if hasattr(out, "set") and not out.batch_size:  # neither a tuple of tensors nor unreduced losses
            for name, number in self.shaping.batches.metrics().items():
                out.set(f"shaping_{name}", torch.as_tensor(number))
        return out


class LossShaping(ShapingModule):
    """A child of the loss, so that `loss.state_dict()` holds what eta has learned."""

    def __init__(self, loss: Any, value: Any, eta: Any, period: float | None) -> None:
        has_target = getattr(loss, "delay_qvalue", getattr(loss, "delay_value", False))
        super().__init__(loss, value, BatchShaper(eta, has_target=has_target))
        if self.batches.scale.probes and period is None:
            raise BadInput('eta="auto" needs the target network\'s period: shape(loss, eta="auto", updater=updater)')
        self._period = period
        self.step = 0
        """Training step of the next batch, for schedules of eta."""

    def value_estimate(self, estimator: Any, tensordict: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return what the loss's own estimator returns, with the shaping term on top."""
        if type(estimator) is not TD0Estimator or estimator.average_rewards:
            raise BadInput(
                f"the loss estimates values by {type(estimator).__name__}; bsrs.torchrl needs TD0, without "
                "average_rewards. For n-step returns use MultiStepTransform in the replay buffer"
            )
        target: Tensor = estimator.value_estimate(tensordict, *args, **kwargs)
        return self.shaped_target(target, tensordict, estimator)

    @torch.no_grad()
    def shaped_target(self, target: Tensor, tensordict: Any, estimator: Any) -> Tensor:
        """Return `target`, r + gamma V(s'), with the shaping term added."""
        batches, keys = self.batches, estimator.tensor_keys
        batches.step, self.step = self.step, self.step + 1
        if batches.is_active(batches.step):
            td = tensordict.reshape(-1)
            next_td = td.get("next")
            done = next_td.get(keys.done)
            found = target, next_td.get(keys.reward), next_td.get(keys.terminated, default=done)
            plain, reward, terminated = (tensor.reshape(-1) for tensor in found)
            steps = td.get(keys.steps_to_next_obs, default=None)
            gamma = estimator.gamma.expand_as(reward) if steps is None else estimator.gamma ** steps.reshape(-1)
            with separate_rng(batches.updates + 1):
                value, next_value = self.value(td), self.value(next_td)
            term = batches.term(
                value,
                next_value,
                reward=reward,
                gamma=gamma,
                terminated=terminated,
                bootstrap=(plain - reward) / gamma,  # where the episode terminated it is 0, and does not count
                state=self.obs(td),
                next_state=self.obs(next_td),
            )
            target = target + term.reshape(target.shape)
            batches.watch(td, len(reward), self.value, batches.updates, self._period or 1)
        return target

    def obs(self, td: Any) -> Any:
        """Return what a state-dependent eta gets: the observation, or a tensordict where there are several."""
        loss = self._parent[0]
        keys = loss.value_network.in_keys if isinstance(loss, DQNLoss) else loss.actor_network.in_keys
        return td.get(keys[0]) if len(keys) == 1 else td.select(*keys)

    def get_extra_state(self) -> dict[str, Any]:
        return {**super().get_extra_state(), "step": self.step}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.step = self.batches.step


# V by the loss's online networks: `td` has the observations, and is left as it is.


def _dqn_value(loss: Any, td: Any) -> Tensor:
    """max_a Q(s, a), over the actions that the network's mask allows."""
    with loss.value_network_params.data.to_module(loss.value_network, preserve_module_state=False):
        out = loss.value_network(td.select(*loss.value_network.in_keys))
    value: Tensor = out.get(loss.tensor_keys.value)
    return value


def _ddpg_value(loss: Any, td: Any) -> Tensor:
    """Q(s, pi(s))."""
    td = _act(loss, td)
    with loss.value_network_params.data.to_module(loss.value_network, preserve_module_state=False):
        value: Tensor = loss.value_network(td).get(loss.tensor_keys.state_action_value)
    return value


def _td3_value(loss: Any, td: Any) -> Tensor:
    """min_i Q_i(s, pi(s))."""
    td = _act(loss, td)
    critics = loss._vmap_qvalue_network00(
        td.expand(loss.num_qvalue_nets, *td.batch_size), loss.qvalue_network_params.data
    )
    value: Tensor = critics.get(loss.tensor_keys.state_action_value).amin(0)
    return value


def _act(loss: Any, td: Any) -> Any:
    """Return the observations with the actor's actions."""
    critic = loss.value_network if isinstance(loss, DDPGLoss) else loss.qvalue_network
    td = td.select(*loss.actor_network.in_keys, *critic.in_keys, strict=False)
    with loss.actor_network_params.data.to_module(loss.actor_network, preserve_module_state=False):
        return loss.actor_network(td)


def _sac_value(loss: Any, td: Any) -> Tensor:
    """min_i Q_i(s, a) - alpha log pi(a | s) at one sampled action."""
    td = td.select(*loss.actor_network.in_keys, *loss.qvalue_network.in_keys, strict=False)
    params = loss.actor_network_params.data
    with (
        set_exploration_type(ExplorationType.RANDOM),
        params.to_module(loss.actor_network, preserve_module_state=False),
    ):
        dist = loss.actor_network.get_dist(td)
        action = dist.rsample()
        log_prob = dist.log_prob(action)
    critics = loss._vmap_qnetworkN0(td.set(loss.tensor_keys.action, action), loss.qvalue_network_params.data)
    q = critics.get(loss.tensor_keys.state_action_value).amin(0).reshape(-1)
    value: Tensor = q - loss._alpha * log_prob.reshape(-1)
    return value


READERS = {DQNLoss: _dqn_value, DDPGLoss: _ddpg_value, TD3Loss: _td3_value, SACLoss: _sac_value}
