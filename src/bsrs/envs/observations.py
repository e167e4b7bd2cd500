"""An env's own observations as the arrays that agents take.

Vectors stay as they are. Images come out channels first, bytes as bytes, so that they get a convolutional network;
everything else is flattened into a vector. Agents, `predict` and exported policies all read observations by this.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, Space, Text, Tuple, flatdim, flatten
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from bsrs.errors import BadInput, EnvFault

SMALLEST_IMAGE = 3  # pixels on a side: what the smallest convolution takes
_WRAPPER = "gymnasium.wrappers.TransformObservation"
SMALLEST_GREY = 8  # a matrix of bytes below this is not taken for a picture


@dataclass(frozen=True)
class Observations:
    """How to read the observations of one env."""

    env: str
    space: Space[Any]
    shape: tuple[int, ...]
    """Shape of one array: images are (channels, height, width), everything else is a vector."""
    dtype: Literal["uint8", "float32"] = "float32"
    scale: float = 1.0
    """A network divides by this."""
    axes: tuple[int, ...] | None = (0,)
    """The order in which the env's axes make up `shape`; None where they are no axes of one array."""
    whole: Space[Any] | None = None
    """The env's own space, where only a part of it is used."""
    key: str = ""
    """The part of the Dict `whole` that `space` is; empty if `space` is a Dict with fewer parts."""

    @classmethod
    def of(cls, env: str, space: Any) -> Self:
        """For that space of `env`, or BadInput where no agent could use it."""
        kept = _without_text(space)
        if kept is None:
            raise BadInput(
                f"env {env!r} has text as observations; expected numbers or images: {_WRAPPER} can make them"
            )
        if isinstance(kept, Dict) and len(images := _images(kept)) == 1 and images[0] in kept.spaces:
            part = cls._of(env, kept.spaces[images[0]])
            return replace(part, whole=space, key=images[0])
        found = cls._of(env, kept)
        return found if kept is space else replace(found, whole=space)

    @classmethod
    def _of(cls, env: str, space: Space[Any]) -> Self:
        if 0 in (space.shape or ()):
            raise BadInput(f"env {env!r} has observations of shape {space.shape}, without a number in them")
        axes = _image_axes(space)
        if axes is not None:
            *channels, height, width = (space.shape[axis] for axis in axes)
            bits = space.dtype == np.bool_ or isinstance(space, MultiBinary)
            largest = 1.0 if bits else float(max(abs(space.low).max(), abs(space.high).max()))  # that an image may hold
            dtype: Literal["uint8", "float32"] = "uint8" if bits or space.dtype == np.uint8 else "float32"
            brightest = largest if 1 < largest < 1e6 else 1.0
            return cls(env, space, (math.prod(channels), height, width), dtype, brightest, axes)
        if isinstance(space, (Box, MultiBinary)):
            return cls(env, space, (math.prod(space.shape),), axes=tuple(range(len(space.shape))))
        if not _is_flattenable(space):
            raise BadInput(
                f"env {env!r} has the observations {_short(space)}; expected ones of a fixed size: {_WRAPPER} can make"
                " them"
            )
        if images := _images(space):
            raise BadInput(
                f"env {env!r} has {len(images)} images in its observations {_short(space)}; expected one at most: wrap"
                f" it in FilterObservation(env, [{images[0].partition('.')[0]!r}]) of gymnasium.wrappers to keep one"
            )
        if flatdim(space) == 0:
            raise BadInput(f"env {env!r} has the observations {_short(space)}, without a number in them")
        return cls(env, space, (flatdim(space),), axes=None)

    @property
    def note(self) -> str:
        """What a user should know about it, if anything."""
        if self.key and isinstance(self.whole, Dict):
            rest = ", ".join(name for name in self.whole.spaces if name != self.key)
            left = f", not {rest}" if rest else ""
            return f"env {self.env!r}: of the observations the image {self.key!r} is used{left}"
        if self.whole is not None:
            text = ", ".join(name for name, part in _parts(self.whole) if _is_text(part))
            numbers = f"the rest is flattened into a vector of {self.shape[0]}"
            return f"env {self.env!r}: the text {text} of the observations is left out; {numbers}"
        if self.axes == (0,) or len(self.shape) == 3:
            return ""
        return f"env {self.env!r}: the observations {_short(self.space)} are flattened into {self.shape[0]} numbers"

    @property
    def is_array(self) -> bool:
        """Whether the env's own observations are arrays of numbers."""
        return self.axes is not None and self.whole is None

    def _used(self, obs: Any) -> Any:
        """The part of the env's observation, or of a batch of them, that is used."""
        if self.whole is None or not isinstance(obs, dict):
            return obs
        return obs[self.key] if self.key else _picked(self.space, obs)

    def one(self, obs: Any) -> NDArray[Any]:
        """One observation of the env as an array of `shape`."""
        obs = self._used(obs)
        if self.axes is None:
            return np.asarray(flatten(self.space, obs), np.float32)
        array = np.asarray(obs)
        if array.shape == self.shape:
            return array
        if array.shape != self.space.shape:
            raise EnvFault(f"env {self.env!r} gave an observation of shape {array.shape}; its space is {self.space}")
        arranged: NDArray[Any] = self._arranged(array[None])[0]
        return arranged

    def batch(self, obs: Any) -> tuple[NDArray[Any], bool]:
        """One observation or several, as the env or `bsrs.envs.make` gives them: (B, *shape), and if it was one."""
        obs = [self._used(each) for each in obs] if isinstance(obs, list) else self._used(obs)
        if self.axes is None and not self._is_array(obs):
            single = self.space.contains(obs)
            rows = [obs] if single else self._rows(obs)
            return np.stack([self.one(row) for row in rows]), single
        array = np.asarray(obs)
        own = self.space.shape if self.axes is not None else self.shape
        shape = next((s for s in (own, self.shape) if array.shape[-len(s) :] == s), None)
        if shape is None or array.ndim > len(shape) + 1:
            raise BadInput(f"an observation of shape {array.shape} was given; expected {own}, or a batch (B, *{own})")
        single = array.ndim == len(shape)
        array = array[None] if single else array
        return self._typed(self._arranged(array) if shape == own and self.axes else array), single

    def own_form(self, batch: NDArray[Any]) -> NDArray[Any]:
        """The way back: arrays (B, *shape) as the env gives them. What is no array of the env's stays flat."""
        if self.axes is None:
            return batch
        shape = [self.space.shape[axis] for axis in self.axes]
        back = np.argsort(self.axes) + 1
        return batch.reshape(-1, *shape).transpose(0, *back)

    def _arranged(self, batch: NDArray[Any]) -> NDArray[Any]:
        assert self.axes is not None
        return batch.transpose(0, *(axis + 1 for axis in self.axes)).reshape(-1, *self.shape)

    def _typed(self, batch: NDArray[Any]) -> NDArray[Any]:
        typed = np.ascontiguousarray(batch, self.dtype)
        if self.dtype == "uint8" and batch.dtype != np.uint8 and not np.array_equal(typed, batch):
            raise BadInput(f"the images given are {batch.dtype}; expected whole numbers from 0 to {self.scale:g}")
        return typed

    def _is_array(self, obs: Any) -> bool:
        """Whether it is flattened already."""
        return (
            isinstance(obs, np.ndarray)
            and obs.ndim in (1, 2)
            and obs.shape[-1:] == self.shape
            and obs.dtype.kind == "f"
        )

    def _rows(self, obs: Any) -> list[Any]:
        try:
            if isinstance(obs, list):
                rows = obs
            else:
                first = next(iter(obs.values())) if isinstance(obs, dict) else obs[0] if isinstance(obs, tuple) else obs
                rows = list(iterate(batch_space(self.space, len(first)), obs))
        except (TypeError, KeyError, IndexError, StopIteration, ValueError):
            rows = []
        if not rows or not all(self.space.contains(row) for row in rows):
            raise BadInput(f"the observation given is not one of {_short(self.space)}, nor a batch of them")
        return rows


def _image_axes(space: Space[Any]) -> tuple[int, ...] | None:
    """The axes of an image, or of a stack of images, with height and width last; None if it is neither."""
    if not isinstance(space, (Box, MultiBinary)):
        return None
    shape = space.shape
    if len(shape) == 2:
        grey = space.dtype == np.uint8 and min(shape) >= SMALLEST_GREY
        return (0, 1) if grey else None
    if len(shape) not in (3, 4):
        return None
    first = len(shape) - 3  # in a stack of images each image comes after the axis of the stack
    channels = first if shape[first] < shape[-1] and shape[first] <= shape[first + 1] else len(shape) - 1
    axes = (*range(first), channels, *(axis for axis in range(first, len(shape)) if axis != channels))
    return axes if min(shape[axis] for axis in axes[-2:]) >= SMALLEST_IMAGE else None


def _is_text(space: Space[Any]) -> bool:
    """Whether it holds strings: Gymnasium's Text, and spaces such as MiniGrid's missions."""
    return isinstance(space, Text) or (space.dtype is not None and np.dtype(space.dtype).kind == "U")


def _without_text(space: Space[Any]) -> Space[Any] | None:
    """The space without the text in it: itself if there is none, None if nothing is left."""
    if not isinstance(space, Dict):
        return None if _is_text(space) else space
    kept = {name: _without_text(part) for name, part in space.spaces.items()}
    if all(kept[name] is part for name, part in space.spaces.items()):
        return space
    left = {name: part for name, part in kept.items() if part is not None}
    return Dict(left) if left else None


def _picked(space: Space[Any], obs: Any) -> Any:
    """The parts of an observation that the space has."""
    return {name: _picked(part, obs[name]) for name, part in space.spaces.items()} if isinstance(space, Dict) else obs


def _images(space: Space[Any]) -> list[str]:
    return [name for name, part in _parts(space) if _image_axes(part) is not None]


def _is_flattenable(space: Space[Any]) -> bool:
    try:
        return bool(space.is_np_flattenable)
    except NotImplementedError:
        return False


def _parts(space: Space[Any], name: str = "") -> list[tuple[str, Space[Any]]]:
    """Every space inside a Dict or Tuple, with its name."""
    inner = (
        space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces) if isinstance(space, Tuple) else ()
    )
    return [found for key, part in inner for found in ((f"{name}{key}", part), *_parts(part, f"{name}{key}."))]


def _short(space: Space[Any]) -> str:
    """A space in a few words."""
    if isinstance(space, Dict):
        return f"Dict({', '.join(space.spaces)})"
    text = f"Box{space.shape}" if isinstance(space, Box) else str(space)
    return text if len(text) <= 60 else f"{type(space).__name__}(...)"
