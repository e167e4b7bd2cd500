"""What all tests share: one thread each, and property tests that try the same examples in every run."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and NumPy start their pools

from hypothesis import settings

settings.register_profile("suite", max_examples=50, deadline=None, derandomize=True)
settings.load_profile("suite")
