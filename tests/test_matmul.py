"""Our matrix product against NumPy's, with the vectors of this processor and with those of an older one."""

import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs.kernels.compiling import compiled
from bsrs.kernels.matmul import WIDTH, N, T, product

OLDER = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma"}


@compiled()
def multiply(a: Any, of_a: int, b: Any, of_b: int, out: Any, rows: int, inner: int, columns: int) -> None:
    product(a, of_a, b, of_b, out, rows, inner, columns)


MANY = st.integers(1, 70) | st.integers(510, 530)  # with many rows, a's transpose is made first


@given(st.sampled_from([N, T]), st.sampled_from([N, T]), MANY, *[st.integers(1, 70)] * 2, st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_it_is_numpys_product(of_a: int, of_b: int, rows: int, inner: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((rows, inner), (inner, columns)))
    out, alone = np.full((rows + 1, columns), 7, np.float32), np.empty(columns, np.float32)
    stored_a, stored_b = (a.T if of_a == T else a).ravel(), (b.T if of_b == T else b).ravel()
    multiply(stored_a, of_a, stored_b, of_b, out.ravel(), rows, inner, columns)
    np.testing.assert_allclose(out[:rows], a @ b, rtol=1e-5, atol=1e-4)
    assert (out[rows] == 7).all()  # nothing is written behind the result
    for row in {0, rows - 1}:  # a row does not depend on the others
        multiply(a[row].copy(), N, stored_b, of_b, alone, 1, inner, columns)
        np.testing.assert_array_equal(alone, out[row])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="only x86 has vectors of two lengths")
@pytest.mark.skipif(WIDTH == 8, reason="this processor has the shorter vectors")
def test_with_the_vectors_of_an_older_processor() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    ended = subprocess.run(command, env={**os.environ, **OLDER}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout
