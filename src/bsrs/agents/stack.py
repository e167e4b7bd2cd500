"""The members' networks of one kind: their Adam, and what a checkpoint keeps of one member."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from bsrs.agents.adam import Adam
from bsrs.agents.agent import State
from bsrs.agents.nature import PatchConv, StackedConv
from bsrs.agents.networks import Weights


class WeightRows(Protocol):
    """Networks whose parameters are rows of numbers."""

    weights: Weights


class Stack:
    """The members' networks of one kind, `per_member` of them each, and who trains them.

    Networks keep their parameters in one of two ways: as rows of numbers, or as members with tensors of their own
    (`StackedConv`). Only this class cares.
    """

    def __init__(
        self, network: WeightRows | StackedConv, members: int, per_member: int = 1, *, copy_of: str = ""
    ) -> None:
        self.network, self.members, self._per_member = network, members, per_member
        self.copy_of = copy_of  # of target networks: the name of what they follow
        if isinstance(network, StackedConv):
            self.parameters: list[Tensor] = list(network.parameters())
        else:
            self.parameters = [network.weights.numbers]
        self.optimizer: Adam | None = None

    @staticmethod
    def trained(network: WeightRows | StackedConv, learning_rates: Sequence[float], per_member: int = 1) -> "Stack":
        """With an Adam of its own, each member at its learning rate."""
        stack = Stack(network, len(learning_rates), per_member)
        stack.optimizer = Adam(stack.parameters, [rate for rate in learning_rates for _ in range(per_member)])
        return stack

    @property
    def adam(self) -> Adam:
        """Who trains it."""
        assert self.optimizer is not None
        return self.optimizer

    def weights(self, member: int) -> State:
        """One member's weights."""
        return State({name: view(self.parameters[i]).detach().clone() for name, i, view in self._named(member)})

    @torch.no_grad()
    def load_weights(self, member: int, state: State) -> None:
        """What `weights` took out, put back."""
        tensors = self._converted(state)
        for name, i, view in self._named(member):
            weight = view(self.parameters[i])
            weight.copy_(tensors[name].view_as(weight))

    def adam_state(self, member: int) -> State:
        """The optimiser's memory of one member's weights; empty before the first step."""
        state = State()
        for name, i, view in self._named(member):
            for key, memory in self.adam.state[self.parameters[i]].items():
                state.tensors[f"{name}/{key}"] = (view(memory) if memory.ndim else memory).clone()
        return state

    @torch.no_grad()
    def load_adam_state(self, member: int, state: State) -> None:
        """What `adam_state` took out, put back."""
        tensors = self._converted(state)
        for name, i, view in self._named(member) if tensors else ():
            for key, memory in self.adam.memory_of(self.parameters[i]).items():
                part = view(memory) if memory.ndim else memory
                part.copy_(tensors[f"{name}/{key}"].view_as(part))

    def _converted(self, state: State) -> dict[str, Tensor]:
        """Saved tensors in the layout that the network has today."""
        return self.network.converted(state.tensors) if isinstance(self.network, PatchConv) else state.tensors

    def _named(self, member: int) -> Iterator[tuple[str, int, Callable[[Tensor], Tensor]]]:
        """A member's parameters: the name, in which of `parameters` it lies, and how it is seen in one like that."""
        if isinstance(self.network, StackedConv):
            names = [name for name, _ in self.network.members[member].named_parameters()]
            for i, name in enumerate(names, start=member * len(names)):
                yield name, i, lambda tensor: tensor
            return
        rows = slice(member * self._per_member, (member + 1) * self._per_member)
        weights = self.network.weights
        for name in weights.names:
            view = functools.partial(weights.view, name, networks=member if self._per_member == 1 else rows)
            yield name, 0, view
