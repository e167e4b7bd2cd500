"""Every random draw of the project comes from a named stream of a run's seed.

A stream depends on the seed and on its own name only, so what one part of a run draws never shifts
what another part sees, and a member of a population sees the same numbers alone or in company.
"""

import zlib

import numpy as np


def seed_sequence(seed: int, *names: str | int) -> np.random.SeedSequence:
    """The seed sequence of the stream `names` (for example `"env", 3`) of `seed`."""
    key = tuple(name if isinstance(name, int) else zlib.crc32(name.encode()) for name in names)
    return np.random.SeedSequence(entropy=seed, spawn_key=key)


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for the stream `names` of `seed`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *names)))


def stream_seed(seed: int, *names: str | int) -> int:
    """A 31-bit seed for libraries that want an integer (Gymnasium, ALE, PyTorch)."""
    return int(seed_sequence(seed, *names).generate_state(1)[0] >> 1)
