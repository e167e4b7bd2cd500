"""What all tests share: one thread each, and property tests that try the same examples in every run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and NumPy start their pools

import pytest
from hypothesis import settings

settings.register_profile("suite", max_examples=50, deadline=None, derandomize=True)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Numba's parallel kernels share OpenMP with PyTorch and leave it as many threads as there are cores.

    Two test processes with two threads each on two cores take many times as long as with one.
    """
    yield
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_plugins_left() -> Iterator[None]:
    """`--plugin` and the experiments name their plugins in the environment, which the next test must not inherit."""
    yield
    os.environ.pop("BSRS_PLUGINS", None)
