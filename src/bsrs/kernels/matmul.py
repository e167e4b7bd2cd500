"""Single-precision matrix products inside compiled code, without a library.

For the products of small networks, a library's call, checks and packing cost as much as the arithmetic. Here a tile of
the result, four rows by two of the processor's vectors, stays in registers while the inner dimension passes by. Every
number is summed in the same order, so a row's result depends neither on the rows next to it nor on how many there are.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2]  # of the processor that numba compiles for
WIDTH = 16 if "+avx512f" in _FEATURES else 8  # floats of a vector
ROWS, COLUMNS = 4, 2 * WIDTH  # of a tile
N, T = 0, 1  # a matrix as it is, or its transpose
_FEW, _SMALL = 16, 8192  # with fewer rows than this, or fewer numbers in b, b is read where it lies
_FAR = 512  # numbers between two rows of a beyond which its columns push each other out of the cache
_FLOAT, _INT = ir.FloatType(), ir.IntType(64)
_VECTOR, _PLACES = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(ir.IntType(32), WIDTH)


@njit
def product(a, of_a, b, of_b, out, rows, inner, columns):
    """`out = op(a) @ op(b)`, (rows, inner) @ (inner, columns), all of them stored by rows."""
    if of_a == T and rows >= _FAR:
        a, of_a = _transposed(a, inner, rows), N
    a_row, a_column = (4, 4 * rows) if of_a == T else (4 * inner, 4)  # bytes from one to the next
    panel, tile = _aligned(inner * COLUMNS), _aligned(ROWS * COLUMNS)
    for begin in range(0, columns, COLUMNS):
        width = min(COLUMNS, columns - begin)
        if of_b == N and width == COLUMNS and (rows < _FEW or inner * columns < _SMALL):
            at_b, b_row = _address(b) + 4 * begin, 4 * columns
        else:
            _pack(b, of_b, panel, begin, width, inner, columns)
            at_b, b_row = _address(panel), 4 * COLUMNS
        for r in range(0, rows, ROWS):
            count, at_a = min(ROWS, rows - r), _address(a) + r * a_row
            to, to_row = _address(out) + 4 * (r * columns + begin), 4 * columns
            if width < COLUMNS:  # there is no room for a whole tile
                to, to_row = _address(tile), 4 * COLUMNS
            if count == ROWS:
                _four_rows(at_a, at_b, to, inner, a_row, a_column, b_row, to_row)
            else:
                for k in range(count):
                    _one_row(at_a + k * a_row, at_b, to + k * to_row, inner, a_row, a_column, b_row, to_row)
            if width < COLUMNS:
                for k in range(count):
                    for c in range(width):
                        out[(r + k) * columns + begin + c] = tile[k * COLUMNS + c]


@njit
def _address(array):
    return np.int64(array.ctypes.data)


@njit
def _aligned(size):
    """An array that begins at a cache line."""
    block = np.empty(size + 16, np.float32)
    first = -(_address(block) // 4) % 16
    return block[first : first + size]


@njit
def _pack(b, of_b, panel, begin, width, inner, columns):
    """Put some columns of op(b) side by side, (inner, COLUMNS), with zeros where there are fewer."""
    if of_b == N and width == COLUMNS:
        _copy_rows(_address(b) + 4 * begin, 4 * columns, _address(panel), 4 * COLUMNS, inner)
        return
    if width < COLUMNS:
        panel[:] = 0
    if of_b == N:
        for k in range(inner):
            source, row = b[k * columns + begin :], panel[k * COLUMNS :]
            for c in range(width):
                row[c] = source[c]
        return
    whole_columns, whole_inner = width - width % WIDTH, inner - inner % WIDTH
    for c in range(0, whole_columns, WIDTH):
        for k in range(0, whole_inner, WIDTH):
            source = _address(b) + 4 * ((begin + c) * inner + k)
            _transpose(source, 4 * inner, _address(panel) + 4 * (k * COLUMNS + c), 4 * COLUMNS)
    for c in range(width):
        for k in range(whole_inner if c < whole_columns else 0, inner):
            panel[k * COLUMNS + c] = b[(begin + c) * inner + k]


@njit
def _transposed(a, rows, columns):
    """Return a (rows, columns) as (columns, rows)."""
    out = _aligned(rows * columns)
    whole_rows, whole_columns = rows - rows % WIDTH, columns - columns % WIDTH
    for c in range(0, whole_columns, WIDTH):
        for r in range(0, whole_rows, WIDTH):
            _transpose(_address(a) + 4 * (r * columns + c), 4 * columns, _address(out) + 4 * (c * rows + r), 4 * rows)
    for c in range(columns):
        for r in range(whole_rows if c < whole_columns else 0, rows):
            out[c * rows + r] = a[r * columns + c]
    return out


# ---- what LLVM is told in its own words, because no loop of ours becomes these instructions


def _tile(rows):
    """Make an intrinsic that computes so many rows of a tile.

    It takes the addresses of a, b and out, the length of the inner dimension, and distances in bytes: between a's rows,
    a's columns, b's rows and out's rows. The columns of b and out are next to each other.
    """

    def generate(context, builder, signature, args):
        a, b, out, inner, a_row, a_column, b_row, out_row = args
        at_a = [cgutils.alloca_once_value(builder, _plus(builder, a, a_row, r)) for r in range(rows)]
        at_b = cgutils.alloca_once_value(builder, b)
        zero = ir.Constant(_VECTOR, None)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(2)] for _ in range(rows)]
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{WIDTH}f32")
        with cgutils.for_range(builder, inner):
            row_of_b = [_load(builder, _plus(builder, builder.load(at_b), _INT(4 * WIDTH), c)) for c in range(2)]
            builder.store(builder.add(builder.load(at_b), b_row), at_b)
            for place, row in zip(at_a, sums, strict=True):
                number = _everywhere(builder, builder.load(builder.inttoptr(builder.load(place), _FLOAT.as_pointer())))
                builder.store(builder.add(builder.load(place), a_column), place)
                for vector, total in zip(row_of_b, row, strict=True):
                    builder.store(builder.call(multiply_add, [number, vector, builder.load(total)]), total)
        for r, row in enumerate(sums):
            for c, total in enumerate(row):
                _store(
                    builder, builder.load(total), _plus(builder, _plus(builder, out, out_row, r), _INT(4 * WIDTH), c)
                )
        return context.get_dummy_value()

    def tile(typing, a, b, out, inner, a_row, a_column, b_row, out_row):
        return types.void(*[types.int64] * 8), generate

    return intrinsic(tile)


_four_rows, _one_row = _tile(ROWS), _tile(1)


@intrinsic
def _copy_rows(typing, source, source_row, to, to_row, count):
    """Copy so many rows of COLUMNS numbers. The distances between rows are in bytes."""

    def generate(context, builder, signature, args):
        source, source_row, to, to_row, count = args
        with cgutils.for_range(builder, count) as loop:
            row = [_plus(builder, start, step, loop.index) for start, step in ((source, source_row), (to, to_row))]
            for c in range(COLUMNS // WIDTH):
                here, there = (_plus(builder, start, _INT(4 * WIDTH), _INT(c)) for start in row)
                _store(builder, _load(builder, here), there)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@intrinsic
def _transpose(typing, source, source_row, to, to_row):
    """Transpose a square block, as wide as a vector. The distances between rows are in bytes."""

    def generate(context, builder, signature, args):
        source, source_row, to, to_row = args
        rows = [_load(builder, _plus(builder, source, source_row, r)) for r in range(WIDTH)]
        step = WIDTH // 2
        while step:  # swap ever smaller blocks across the diagonal
            upper = [k if not k & step else WIDTH + k - step for k in range(WIDTH)]
            lower = [k + step if not k & step else WIDTH + k for k in range(WIDTH)]
            for r in (r for r in range(WIDTH) if not r & step):
                pair = rows[r], rows[r + step]
                rows[r] = builder.shuffle_vector(*pair, ir.Constant(_PLACES, upper))
                rows[r + step] = builder.shuffle_vector(*pair, ir.Constant(_PLACES, lower))
            step //= 2
        for r, row in enumerate(rows):
            _store(builder, row, _plus(builder, to, to_row, r))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


def _plus(builder, address, distance, times):
    return builder.add(address, builder.mul(distance, _INT(times) if isinstance(times, int) else times))


def _load(builder, address):
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=4)


def _store(builder, vector, address):
    builder.store(vector, builder.inttoptr(address, _VECTOR.as_pointer()), align=4)


def _everywhere(builder, number):
    """A vector that has the number in every place."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(_PLACES, None))
