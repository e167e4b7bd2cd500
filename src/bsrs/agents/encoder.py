"""Images for actors and critics: a convolutional network turns them into features, which stand in for observations.

As in DrQ-v2 (Yarats et al., 2021, arXiv:2107.09645), without its random shifts: the critics' loss trains it,
the actor takes its features as they are, and there is no target encoder. Vectors pass through untouched.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bsrs.agents.nature import MINATAR, SMALL, StackedConv
from bsrs.agents.population import generators
from bsrs.agents.replay import Batch
from bsrs.agents.stack import Stack
from bsrs.agents.tapes import RecordedTape, Tape
from bsrs.config.agents import ActorCriticConfig
from bsrs.envs import EnvSpec
from bsrs.errors import BadInput

FEATURES = 64


class Encoder:
    """The members' encoders, or nothing where observations are vectors."""

    def __init__(self, configs: Sequence[ActorCriticConfig], spec: EnvSpec, device: torch.device) -> None:
        self.network: StackedConv | None = None
        self.size = spec.obs_shape[0]
        """Numbers of one observation, as actors and critics take it."""
        self._tape: RecordedTape | None = None
        self._factor = 1 / spec.obs_scale
        if spec.is_image:
            if any(config.potential == "static" for config in configs):
                raise BadInput(f"potential static has env {spec.env!r} with images; expected another potential")
            shape = SMALL if SMALL.fits(spec.obs_shape) else MINATAR
            seeds = generators([config.seed for config in configs], "init", "encoder")
            self.network, self.size = StackedConv(shape, spec.obs_shape, FEATURES, seeds, device=device), FEATURES

    def stacks(self, learning_rates: Sequence[float]) -> dict[str, Stack]:
        """The encoders by name, with who trains them."""
        return {} if self.network is None else {"encoder": Stack.trained(self.network, learning_rates)}

    def features(self, obs: Tensor) -> Tensor:
        """(P, B, *obs) -> (P, B, O)."""
        return obs if self.network is None else self.network(obs.float() * self._factor)

    def encode(self, batch: Batch) -> Batch:
        """The batch with features in place of images; remembered until `learn`."""
        assert self.network is not None
        self._tape = self.network.record(batch.obs.float() * self._factor)
        with torch.no_grad():
            return batch._replace(obs=self._tape.output, next_obs=self.features(batch.next_obs))

    def learn(self, critics: Tape, grad_q: Tensor, stacks: dict[str, Stack]) -> None:
        """One step on the critics' loss: `critics` is their pass over the encoded batch, (P * n, B, 1)."""
        assert self._tape is not None
        grad_input = critics.input_gradient(grad_q)[..., : self.size]  # (P * n, B, O)
        members, rows, _ = self._tape.output.shape
        grad_features = grad_input.reshape(members, -1, rows, self.size).sum(dim=1)  # (P, B, O)
        stacks["encoder"].adam.learn(self._tape, grad_features)
        self._tape = None
