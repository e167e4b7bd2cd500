"""Passes and gradients of networks on a CPU, as one compiled call each.

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
def _narrow_product(x, weight, out, rows, fan_in, fan_out):
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
def _narrow_outer(x, grad, out, rows, fan_in, fan_out):
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


@njit
def _layer(sgemm, x, weight, bias, y, rows, relu):
    """`y = x @ weight + bias`, with a ReLU or without."""
    fan_out = len(bias)
    fan_in, least, seen = len(weight) // fan_out, np.float32(0 if relu else -np.inf), np.float32(0)
    if fan_out < _NARROW:
        _narrow_product(x, weight, y, rows, fan_in, fan_out)
    else:
        seen = _read(weight)
        _product(sgemm, x, _N, weight, _N, y, rows, fan_in, fan_out)
    for b in range(rows):
        out = y[b * fan_out : (b + 1) * fan_out]
        for k in range(fan_out):
            out[k] = max(out[k] + bias[k], least)
    return seen


@njit(
    "f4(u8, u4[:, :, ::1], i8, f4[:, :, ::1], i8, f4[:, :], i8[::1], f4[:, :, ::1], f4[:, ::1], f4[:, :, ::1],"
    "f4[:, :, ::1])",
    cache=True,
    nogil=True,
)
def forward(sgemm, spans, stem, x, each, numbers, sizes, features, hidden, more, out):
    """`each` networks on every batch of `features` (P, B, in): what their layers put out, into `hidden` and `out`.

    `hidden` has room for all networks and rows, if it is to be kept, or for one network and some rows, which are then
    computed so many at a time. Where the first `stem` numbers are those of a convolution, it makes the features of the
    images `x` and `more`. The number that is returned means nothing: it is there so that `_read` is not left out.
    """
    rows, last, seen = features.shape[1], len(sizes) - 2, np.float32(0)
    units = sizes[1:-1].sum()
    most = hidden.shape[1] // units if units else rows
    for network in range(len(numbers)):
        row, batch = numbers[network], network // each
        if stem:
            kernel, split = np.ascontiguousarray(row[:stem]), x.shape[1]
            sparse_conv.convolve(spans, x[batch], kernel, features[batch, :split])
            sparse_conv.convolve(spans, more[batch], kernel, features[batch, split:])
        kept = hidden[min(network, len(hidden) - 1)]
        for first in range(0, rows, most):
            end_row = min(first + most, rows)
            source, at, begin = features[batch, first:end_row].ravel(), stem, 0
            for i in range(last + 1):
                fan_in, fan_out = sizes[i], sizes[i + 1]
                end = at + fan_in * fan_out
                weight, bias = row[at:end], np.ascontiguousarray(row[end : end + fan_out])
                y = out[network, first:end_row].ravel() if i == last else kept[begin : begin + most * fan_out]
                seen += _layer(sgemm, source, weight, bias, y, end_row - first, i < last)
                source, at, begin = y, end + fan_out, begin + most * fan_out
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
                _narrow_outer(source, gradient, into[at:end], rows, fan_in, fan_out)
            else:
                _product(sgemm, source, _T, gradient, _N, into[at:end], fan_in, rows, fan_out)
            bias = into[end : end + fan_out]
            bias[:] = 0
            for b in range(rows):
                of_row = gradient[b * fan_out : (b + 1) * fan_out]
                for k in range(fan_out):
                    bias[k] += of_row[k]
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
def _adam(numbers, gradient, mean, square, rate, settings):
    """A step of Adam on one network's numbers. `settings` are the count of steps, both betas, epsilon, and the
    largest norm of a gradient: a longer one is scaled to it.

    Where gradients are zero, the moments fall until they are so small that the processor takes many times as long for
    each: there they become zero.
    """
    step, beta, beta_square, eps, max_norm = settings
    size = np.float32(rate / (1 - beta**step))
    correction = np.float32((1 - beta_square**step) ** -0.5)
    new, old_square, new_square = np.float32(1 - beta), np.float32(beta_square), np.float32(1 - beta_square)
    zero, tiny, epsilon, factor = np.float32(0), np.float32(1e-36), np.float32(eps), np.float32(1)
    if max_norm < np.inf:
        total = zero
        for k in range(len(gradient)):
            total += gradient[k] * gradient[k]
        factor = min(np.float32(max_norm) / (np.sqrt(total) + np.float32(1e-6)), factor)
    for k in range(len(numbers)):
        g = gradient[k] * factor
        m = mean[k] + new * (g - mean[k])
        v = square[k] * old_square + new_square * g * g
        mean[k], square[k] = m if abs(m) > tiny else zero, v if v > tiny else zero
        numbers[k] -= size * m / (np.sqrt(v) * correction + epsilon)


@njit("f4(u8, f4[:, :, ::1], f4[:, ::1], i8, f4[:, :], i8[::1], f4[:, :, ::1], f4[:, :, ::1])", cache=True, nogil=True)
def input_gradient(sgemm, features, hidden, each, numbers, sizes, grad_output, into):
    """Of what each network was given, for the first rows of a pass."""
    nothing, seen = np.empty(0, np.float32), np.float32(0)
    for i in range(len(numbers)):
        given = features[i // each], hidden[i], features.shape[1], numbers[i], sizes
        seen += _backward(sgemm, *given, grad_output[i], nothing, into[i])
    return seen


@njit(
    "f4(u8, u4[:, :, ::1], i8, f4[:, :, ::1], i8, f4[:, ::1], i8[::1], f4[:, :, ::1], f4[:, ::1], f4[:, :, ::1],"
    "f4[:, ::1], f4[:, ::1], f8[::1], f8[::1])",
    cache=True,
    nogil=True,
)
def learn(sgemm, spans, stem, x, each, numbers, sizes, features, hidden, grad_output, means, squares, rates, settings):
    """A step of Adam on every network, given the gradient of what the first rows of a pass put out. They come one after
    the other, so that what one has in the cache is used until its step is done."""
    rows, seen = grad_output.shape[1], np.float32(0)
    gradient = np.empty(numbers.shape[1], np.float32)
    grad_features = np.empty((rows if stem else 0, sizes[0]), np.float32)
    for i in range(len(numbers)):
        batch = i // each
        given = features[batch], hidden[i], features.shape[1], numbers[i, stem:], sizes
        seen += _backward(sgemm, *given, grad_output[i], gradient[stem:], grad_features)
        if stem:
            sparse_conv.gradient(spans, x[batch], features[batch], grad_features, gradient[:stem])
        _adam(numbers[i], gradient, means[i], squares[i], rates[i], settings)
    return seen
