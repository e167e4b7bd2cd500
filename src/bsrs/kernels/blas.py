"""The single-precision matrix product of a BLAS library, called from compiled code through its address."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import ctypes
import functools
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic


@functools.cache
def sgemm_address() -> int:
    """Find `sgemm`: MKL's inside PyTorch, which is faster on small products, or SciPy's."""
    return mkl_sgemm() or scipy_sgemm()


def mkl_sgemm() -> int | None:
    """Find the `sgemm` that PyTorch was built with, where it has MKL's and exports it."""
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not (torch.backends.mkl.is_available() and library.exists()):
        return None
    function = getattr(ctypes.CDLL(str(library)), "sgemm_", None)
    return ctypes.cast(function, ctypes.c_void_p).value if function else None


def scipy_sgemm() -> int:
    """Find the `sgemm` that SciPy offers to compiled code."""
    found: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    return found


@intrinsic
def _sgemm(typing, address, of_b, of_a, columns, rows, inner, width_b, width_a, b, a, out):
    """Call the Fortran routine at `address`, which takes pointers to everything."""

    def generate(context, builder, signature, args):
        def pointer(value):
            return builder.ptrtoint(cgutils.alloca_once_value(builder, value), ir.IntType(64))

        letters = [pointer(builder.trunc(args[i], ir.IntType(8))) for i in (1, 2)]
        m, n, k, ldb, lda = (pointer(builder.trunc(args[i], ir.IntType(32))) for i in range(3, 8))
        one, zero = (pointer(ir.Constant(ir.FloatType(), number)) for number in (1.0, 0.0))
        given = [*letters, m, n, k, one, args[8], ldb, args[9], lda, zero, args[10], m]
        function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(given)).as_pointer()
        builder.call(builder.inttoptr(args[0], function), given)
        return context.get_dummy_value()

    return types.void(types.int64, *[types.int64] * 7, *[types.int64] * 3), generate


N, T = 78, 84  # BLAS's letters for a matrix as it is and for its transpose


@njit
def product(sgemm, a, of_a, b, of_b, out, rows, inner, columns):
    """`out = op(a) @ op(b)`, (rows, inner) @ (inner, columns). BLAS has columns first, so a and b swap."""
    width_a, width_b = rows if of_a == T else inner, inner if of_b == T else columns
    given = np.int64(a.ctypes.data), np.int64(out.ctypes.data)
    _sgemm(sgemm, of_b, of_a, columns, rows, inner, width_b, width_a, np.int64(b.ctypes.data), given[0], given[1])
