"""How a model or a buffer becomes a shaped one in place: its class is replaced by a subclass of it.

So it stays what it was for everything else (`isinstance`, its attributes, its other methods), nothing has to be
delegated, and giving it its own class again undoes it.
"""

import functools
from collections.abc import Callable
from typing import Any


def subclass_maker(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`make(plain)` is called once per class; `ShapedDQN` tells a reader of a traceback more than our class's name."""

    @functools.cache
    def made(plain: Any) -> Any:
        subclass = make(plain)
        subclass.__name__ = subclass.__qualname__ = f"Shaped{plain.__name__}"
        return subclass

    return made


def become(thing: Any, make_subclass: Callable[[Any], Any]) -> None:
    """Make `thing` an instance of the subclass of its own class that `make_subclass` makes."""
    thing.__class__ = make_subclass(type(thing))


def become_plain(thing: Any) -> None:
    """Undo `become`."""
    thing.__class__ = type(thing).__base__


def reduce_as_plain(buffer: Any, protocol: Any) -> Any:
    """How a shaped buffer is saved and copied: as a plain one, which SB3 alone can load and which holds no model."""
    state = {name: part for name, part in buffer.__getstate__().items() if name not in ("shaper", "steps")}
    return object.__new__, (type(buffer).__base__,), state
