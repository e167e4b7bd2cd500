"""What the adapters to other libraries share: the shaping term of a batch, the probes of `auto`, and the state.

An adapter finds three things in its library: where a batch's targets are computed, how to evaluate V, and where the
library keeps its checkpoints. `BatchShaper` does the rest. `bsrs.torchrl` is the shortest example.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bsrs.errors import BadInput
from bsrs.shaping import Bootstrapped, Potential, Shaper, Shaping

REPLACED_AFTER = 100
"""Looks after which `auto` gets new probe observations."""


class BatchShaper(Shaper):
    """A `Shaper` for the batches of a library's training loop.

    With `distributed`, several processes of PyTorch's default group train one agent, each on batches of its own. What
    learns is then shown the batches and probes of all of them, so that every process has the same eta.
    """

    def __init__(
        self,
        eta: Any,
        potential: Potential | None = None,
        *,
        has_target: bool = True,
        keep_terminal: bool = False,
        distributed: bool = False,
    ) -> None:
        """`keep_terminal` leaves the potential of terminal states in, as the authors' code does."""
        super().__init__(Shaping(eta, potential or Bootstrapped()))
        if self.needs_target and not has_target:
            raise BadInput('eta="auto" needs a target network, and this agent has none; choose a number')
        self.step = 0
        """Training step, for schedules of eta."""
        self.updates = 0
        """Batches shaped so far."""
        self.last_value: Tensor | None = None
        """V(s) of the last batch."""
        self._keep_terminal, self._distributed = keep_terminal, distributed
        self._used: dict[str, float] = {}  # where eta learns, the one that shaped the last batch
        self._sum: Tensor | float = 0.0  # of the terms since the last call of `metrics`
        self._count = 0
        self._mean: Tensor | float = 0.0
        self._watched: list[Any] = []
        self._size = self._looks = 0
        self._next_look = 0.0

    @torch.no_grad()
    def term(
        self,
        value: Tensor,
        next_value: Tensor,
        *,
        reward: Tensor,
        gamma: Tensor | float,
        terminated: Tensor,
        bootstrap: Tensor | None = None,
        state: Any = None,
        next_state: Any = None,
    ) -> Tensor:
        """Return what shaping adds to the reward of each transition, `gamma * phi(s') - phi(s)`; every tensor is (B,).

        `next_value` is at the state that the library bootstraps from, n steps later with `gamma ** n`. `bootstrap` is
        the target network's value there, as the library uses it.
        """
        term: Tensor = self(
            torch.zeros_like(value),  # the term is added to the reward at the end: a large one would cost it digits
            value,
            next_value,
            gamma=gamma,
            terminated=None if self._keep_terminal else terminated,
            bootstrap=bootstrap,
            state=state,
            next_state=next_state,
            step=self.step,
        )
        if self.scale.mixes:
            term = term + (self.scale.mix(self.memory, self.step)[1] - 1) * reward
        if self.has_memory:
            self._used = self.in_force(self.step)
        if self.learns:
            arrays = map(self._all, (reward, value, next_value))
            seen = {"terminated": terminated, "obs": state, "next_obs": next_state}
            self.update(*arrays, **{name: self._all(each) for name, each in seen.items()}, step=self.step)
        self.last_value, self._sum, self._count = value, self._sum + term.mean(), self._count + 1
        self.updates += 1
        return term

    def metrics(self) -> dict[str, Any]:
        """Return eta and the mean shaping term since the last call, for the library's logger."""
        if self._count:
            self._mean = self._sum / self._count
        self._sum, self._count = 0.0, 0
        mean = self._mean if self.is_active(self.step) else 0.0
        return {**(self._used or self.in_force(self.step)), "mean": mean}

    @torch.no_grad()
    def watch(self, obs: Any, size: int, value: Callable[[Any], Tensor], now: float, period: float) -> None:
        """Show V of fixed observations to `auto`, once per `period` of the target network.

        `obs` are the `size` observations of the current batch: the first batches become the fixed observations.
        `now` and `period` count the same thing, updates or env steps, whichever the library's target network counts.
        """
        wanted = self.scale.probes
        if not wanted:
            return
        if self._size < wanted:
            self._watched.append(obs)
            self._size += size
        if now < self._next_look:
            return
        self._next_look = now + period
        if self._looks == REPLACED_AFTER:
            self._drop_watched()
            return
        values = self._all(self._watched_values(value, wanted))
        if len(values) == wanted * self._processes:
            self.look(values.double().cpu().numpy())
            self._looks += 1

    def _watched_values(self, value: Callable[[Any], Tensor], wanted: int) -> Tensor:
        """Return V of the fixed observations; nothing while there are too few of them."""
        if self._size < wanted:
            return torch.empty(0)
        with separate_rng(0):  # the same draws at every look: a sampled policy must not look like movement
            return torch.cat([value(part).reshape(-1) for part in self._watched])[:wanted]

    @property
    def _processes(self) -> int:
        return torch.distributed.get_world_size() if self._distributed else 1

    def _all(self, tensor: Any) -> Any:
        """Return the tensors of all processes, one after the other."""
        if self._processes == 1 or tensor is None:
            return tensor
        parts: list[Any] = [None] * self._processes
        torch.distributed.all_gather_object(parts, tensor.detach().cpu())
        return torch.cat(parts).to(tensor.device)

    def _drop_watched(self) -> None:
        self._watched, self._size, self._looks = [], 0, 0
        self.forget()

    def state(self) -> dict[str, Any]:
        """Return what the library's checkpoint has to hold: plain numbers and lists."""
        return {"scale": super().state(), "step": self.step, "updates": self.updates}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`, with the same eta. `auto` takes its fixed observations from the next batches."""
        super().load_state(state["scale"])
        self.step, self.updates, self._next_look = int(state["step"]), int(state["updates"]), 0.0
        self._used = {}
        self._drop_watched()


class ShapingModule(torch.nn.Module):
    """The shaping of a library's object, as a child module: so the object's own checkpoint has what eta has learned."""

    def __init__(self, parent: Any, value: Callable[..., Tensor], batches: BatchShaper) -> None:
        """`value` returns V(s), given `parent` and what `self.value` is given."""
        super().__init__()
        self._parent = (parent,)  # in a tuple, so that the parent does not become a child
        self._value, self.batches = value, batches

    def value(self, *inputs: Any) -> Tensor:
        return self._value(self._parent[0], *inputs).reshape(-1)

    def get_extra_state(self) -> dict[str, Any]:
        return self.batches.state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.batches.load_state(state)


class Instead:
    """An object with some of its methods replaced, for as long as a call takes."""

    def __init__(self, thing: Any, **methods: Any) -> None:
        vars(self).update(methods, _thing=thing)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_thing"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_thing"], name, value)

    @property  # type: ignore[misc]  # so that `isinstance` says what it says of the thing
    def __class__(self) -> Any:
        return type(vars(self)["_thing"])


@contextmanager
def separate_rng(seed: int) -> Iterator[None]:
    """Draw from a stream of our own, so that the library's random numbers stay what they are without shaping."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def reader_for(thing: Any, readers: dict[type, Any], library: str) -> Any:
    """Return the reader of the class that `thing` is or inherits from."""
    for known in type(thing).__mro__:
        if known in readers:
            return readers[known]
    names = ", ".join(sorted(known.__name__ for known in readers))
    found = f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
    raise BadInput(f"bsrs.{library}.shape got {found}; expected one of {names}")


def shaped_class(mixin: type, cls: type) -> Any:
    """Return the class of an object of `cls` that `mixin` shapes: `mixin` in front of it, unless it is there already.

    It calls itself by the name of the plain class, its objects can be copied and pickled, and there is one for as long
    as something needs it.
    """
    plain = plain_class(cls)
    known: Any
    for known in plain.__subclasses__():
        if vars(known).get("_made_of") == (mixin, plain):
            return known
    names = {name: getattr(plain, name) for name in ("__module__", "__qualname__", "__doc__")}
    own = {"__reduce_ex__": _reduce, "_made_of": (mixin, plain)}
    return type(plain)(plain.__name__, (mixin, plain), {**names, **own})


def plain_class(cls: Any) -> Any:
    """Return the plain class behind one that `shaped_class` made, or the class itself."""
    return vars(cls).get("_made_of", (None, cls))[1]


def _reduce(self: Any, protocol: Any) -> Any:
    return _empty, self._made_of, self.__getstate__()


def _empty(mixin: type, plain: type) -> Any:
    return object.__new__(shaped_class(mixin, plain))
