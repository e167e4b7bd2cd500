"""Passes and gradients of large networks on a CPU, as one compiled call each.

Between the matrix products, which are those of the library that PyTorch has, nothing goes back to Python. A network's
numbers are a row as in `Weights`: the weight (in, out) and the bias (out,) of each layer in turn, ReLU in between.
"""
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from bsrs.agents import sparse_conv


@intrinsic
def _call(typing, address, pointers):
    """The C function at `address`, given pointers."""

    def generate(context, builder, signature, args):
        given = cgutils.unpack_tuple(builder, args[1])
        function = ir.FunctionType(ir.VoidType(), [pointer.type for pointer in given]).as_pointer()
        builder.call(builder.inttoptr(args[0], function), given)
        return context.get_dummy_value()

    return types.void(address, pointers), generate


_N, _T = 78, 84  # BLAS's letters for a matrix as it is and for its transpose


@njit
def _product(sgemm, a, of_a, b, of_b, out, rows, inner, columns):
    """`out = op(a) @ op(b)`, (rows, inner) @ (inner, columns). BLAS has columns first, so a and b swap."""
    letters, scales = np.array([of_b, of_a], np.uint8), np.array([1.0, 0.0], np.float32)
    width_a, width_b = rows if of_a == _T else inner, inner if of_b == _T else columns
    sizes = np.array([columns, rows, inner, width_b, width_a], np.int32)
    op, size, scale = letters.ctypes.data, sizes.ctypes.data, scales.ctypes.data
    p, q, r = b.ctypes.data, a.ctypes.data, out.ctypes.data
    _call(sgemm, (op, op + 1, size, size + 4, size + 8, scale, p, size + 12, q, size + 16, scale + 4, r, size))


_NARROW = 16  # fewer columns than this take the library several times as long as they need


@njit(fastmath={"reassoc", "contract"})
def _to_few(x, weight, out, rows, fan_in, fan_out):
    """`out = x @ weight`, (rows, fan_in) @ (fan_in, fan_out), where fan_out is small."""
    columns = np.ascontiguousarray(weight).reshape(fan_in, fan_out).T.copy()
    for b in range(rows):
        row = x[b * fan_in : (b + 1) * fan_in]
        for k in range(fan_out):
            column, total = columns[k], np.float32(0)
            for j in range(fan_in):
                total += row[j] * column[j]
            out[b * fan_out + k] = total


@njit(fastmath={"contract"})
def _from_few(x, grad, out, rows, fan_in, fan_out):
    """`out = x.T @ grad`, (fan_in, rows) @ (rows, fan_out), where fan_out is small."""
    columns = np.zeros((fan_out, fan_in), np.float32)
    for b in range(rows):
        row = x[b * fan_in : (b + 1) * fan_in]
        for k in range(fan_out):
            column, factor = columns[k], grad[b * fan_out + k]
            for j in range(fan_in):
                column[j] += factor * row[j]
    for j in range(fan_in):
        for k in range(fan_out):
            out[j * fan_out + k] = columns[k, j]


@njit
def _read(row):
    """A number of every cache line, in order: products read weights in strides, for which the memory is slower."""
    seen = np.float32(0)
    for k in range(0, len(row), 16):
        seen += row[k]
    return seen


@njit(
    "f4(u8, u4[:, :, ::1], i8, f4[:, :, ::1], i8, f4[:, :], i8[::1], f4[:, :, ::1], f4[:, ::1], f4[:, :, ::1])",
    cache=True,
    nogil=True,
)
def forward(sgemm, spans, stem, x, each, numbers, sizes, features, hidden, out):
    """`each` networks on every batch of `x` (P, B, in): what their layers put out, into `hidden` and `out`. Where
    there is one row of `hidden`, it is written again by every network.

    Where the first `stem` numbers are those of a convolution, `x` are images, of which it makes `features`; elsewhere
    these are `x`. The number that it returns means nothing: it is there so that `_read` is not left out.
    """
    rows, last, seen = x.shape[1], len(sizes) - 2, np.float32(0)
    for network in range(len(numbers)):
        row, batch, at, begin = numbers[network], network // each, stem, 0
        if stem:
            sparse_conv.convolve(spans, x[batch], np.ascontiguousarray(row[:stem]), features[batch])
        source, kept = features[batch].ravel(), hidden[min(network, len(hidden) - 1)]
        for i in range(last + 1):
            fan_in, fan_out = sizes[i], sizes[i + 1]
            end = at + fan_in * fan_out
            weight, bias = row[at:end], np.ascontiguousarray(row[end : end + fan_out])
            y = out[network].ravel() if i == last else kept[begin : begin + rows * fan_out]
            if fan_out < _NARROW:
                _to_few(source, weight, y, rows, fan_in, fan_out)
            else:
                seen += _read(weight)
                _product(sgemm, source, _N, weight, _N, y, rows, fan_in, fan_out)
            least = np.float32(-np.inf if i == last else 0)
            for b in range(rows):
                for k in range(fan_out):
                    y[b * fan_out + k] = max(y[b * fan_out + k] + bias[k], least)
            source, at, begin = y, end + fan_out, begin + rows * fan_out
    return seen


@njit
def _backward(sgemm, x, hidden, all_rows, row, sizes, grad_output, into, grad_input):
    """Of one network, for the first rows of a pass over `all_rows`: the gradients of its numbers into `into`, and of
    its input into `grad_input`, unless these are empty."""
    rows, last, seen = len(grad_output), len(sizes) - 2, np.float32(0)
    at, begin, gradient = len(row), len(hidden), grad_output.ravel()
    for i in range(last, -1, -1):
        fan_in, fan_out = sizes[i], sizes[i + 1]
        end = at - fan_out
        at, begin = end - fan_in * fan_out, begin - all_rows * fan_in
        source = hidden[begin : begin + rows * fan_in] if i > 0 else x.ravel()
        if len(into):
            if fan_out < _NARROW:
                _from_few(source, gradient, into[at:end], rows, fan_in, fan_out)
            else:
                _product(sgemm, source, _T, gradient, _N, into[at:end], fan_in, rows, fan_out)
            bias = into[end : end + fan_out]
            bias[:] = 0
            for b in range(rows):
                for k in range(fan_out):
                    bias[k] += gradient[b * fan_out + k]
        if i == 0 and not len(grad_input):
            return seen
        back = grad_input.ravel() if i == 0 else np.empty(rows * fan_in, np.float32)
        seen += _read(row[at:end])
        _product(sgemm, gradient, _N, row[at:end], _T, back, rows, fan_out, fan_in)
        if i > 0:
            for k in range(len(back)):
                back[k] = back[k] if source[k] > 0 else np.float32(0)
        gradient = back
    return seen


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def _adam(numbers, gradient, mean, square, rate, settings, max_norm):
    """A step of Adam on one network's numbers, with the gradient scaled to a norm of at most `max_norm`.

    `settings` are the second beta, what both leave to the new, the second moment's correction, epsilon.
    Where gradients are zero, the moments fall until they are so small that the processor takes many times as long for
    each: there they become zero.
    """
    beta_square, new, new_square, correction, eps = settings
    one, zero, tiny = np.float32(1), np.float32(0), np.float32(1e-36)
    factor = one
    if max_norm < np.inf:
        total = zero
        for k in range(len(gradient)):
            total += gradient[k] * gradient[k]
        factor = min(max_norm / (np.sqrt(total) + np.float32(1e-6)), one)
    for k in range(len(numbers)):
        g = gradient[k] * factor
        m = mean[k] + new * (g - mean[k])
        v = square[k] * beta_square + new_square * g * g
        mean[k], square[k] = m if abs(m) > tiny else zero, v if v > tiny else zero
        numbers[k] -= rate * m / (np.sqrt(v) * correction + eps)


@njit("f4(u8, f4[:, :, ::1], f4[:, ::1], i8, f4[:, :], i8[::1], f4[:, :, ::1], f4[:, :, ::1])", cache=True, nogil=True)
def input_gradient(sgemm, x, hidden, each, numbers, sizes, grad_output, into):
    """Of what each network was given, for the first rows of a pass."""
    nothing, seen = np.empty(0, np.float32), np.float32(0)
    for i in range(len(numbers)):
        given = x[i // each], hidden[i], x.shape[1], numbers[i], sizes
        seen += _backward(sgemm, *given, grad_output[i], nothing, into[i])
    return seen


@njit(
    "f4(u8, u4[:, :, ::1], i8, f4[:, :, ::1], i8, f4[:, ::1], i8[::1], f4[:, :, ::1], f4[:, ::1], f4[:, :, ::1],"
    "f4[:, ::1], f4[:, ::1], f4[::1], f4[::1], f4)",
    cache=True,
    nogil=True,
)
def learn(
    sgemm,
    spans,
    stem,
    x,
    each,
    numbers,
    sizes,
    features,
    hidden,
    grad_output,
    means,
    squares,
    rates,
    settings,
    max_norm,
):
    """A step of Adam on every network, given the gradient of what the first rows of a pass put out. They come one after
    the other, so that what one has in the cache is used until its step is done."""
    rows, seen = grad_output.shape[1], np.float32(0)
    gradient = np.empty(numbers.shape[1], np.float32)
    grad_features = np.empty((rows if stem else 0, sizes[0]), np.float32)
    for i in range(len(numbers)):
        batch = i // each
        given = features[batch], hidden[i], x.shape[1], numbers[i, stem:], sizes
        seen += _backward(sgemm, *given, grad_output[i], gradient[stem:], grad_features)
        if stem:
            sparse_conv.gradient(spans, x[batch], features[batch], grad_features, gradient[:stem])
        _adam(numbers[i], gradient, means[i], squares[i], rates[i], settings, max_norm)
    return seen
