"""Whether an env keeps its promises, before a run relies on them."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsrs.envs.catalogue import make
from bsrs.envs.spec import EnvSpec
from bsrs.errors import say

_SEED, _STEPS = 0, 3


@cache
def check_env(env: str) -> bool:
    """Make the env twice, reset it with one seed and step it a little. Return whether both did the same.

    What breaks Gymnasium's interface raises EnvFault, with what was expected.
    """
    first, second = (make(env, 1, _SEED, training=True) for _ in range(2))
    try:
        if first.spec.kind in ("atari", "minatar"):
            return True
        same = np.array_equal(first.reset(), second.reset())
        action = _some_action(first.spec)
        for _ in range(_STEPS):
            same &= first.step(action) == second.step(action)
            same &= all(map(np.array_equal, first.buffers, second.buffers))
    finally:
        first.close()
        second.close()
    if not same:
        say(
            f"env {env!r} is not deterministic: with one seed it did two different things, so an interrupted run does"
            " not continue exactly. Draw every random number from self.np_random to make it repeatable"
        )
    return same


def _some_action(spec: EnvSpec) -> NDArray[Any]:
    if spec.action_low is None or spec.action_high is None:
        return np.zeros(1, np.int64)
    ends = np.clip(np.array([spec.action_low, spec.action_high]), -1e3, 1e3)
    middle: NDArray[Any] = ends.mean(axis=0, keepdims=True)
    return middle.astype(np.float32)
