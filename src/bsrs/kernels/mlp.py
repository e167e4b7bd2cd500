"""Passes, gradients and Adam's step of multilayer perceptrons, as functions for compiled code.

A network is a row of numbers: the weight (in, out) and the bias (out,) of each layer in turn, with ReLU in between.
"""
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from numba import njit

from bsrs.kernels.matmul import N, T, product

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
def _column_sums(x, out, rows, columns):
    """`out = x.sum(axis=0)`, (rows, columns)."""
    if columns >= _NARROW:
        product(np.ones(rows, np.float32), N, x, N, out, 1, rows, columns)
        return
    out[:] = 0
    for b in range(rows):
        for k in range(columns):
            out[k] += x[b * columns + k]


@njit
def layer(x, weight, bias, y, rows, relu):
    """`y = x @ weight + bias`, with a ReLU or without."""
    fan_out = len(bias)
    fan_in, least = len(weight) // fan_out, np.float32(0 if relu else -np.inf)
    if fan_out < _NARROW:
        _narrow_product(x, weight, y, rows, fan_in, fan_out)
    else:
        product(x, N, weight, N, y, rows, fan_in, fan_out)
    for b in range(rows):
        out = y[b * fan_out : (b + 1) * fan_out]
        for k in range(fan_out):
            out[k] = max(out[k] + bias[k], least)


@njit
def n_params(sizes):
    """Count the weights and biases of an MLP."""
    count = 0
    for i in range(len(sizes) - 1):
        count += (sizes[i] + 1) * sizes[i + 1]
    return count


@njit
def hidden_units(sizes):
    """Count the hidden units of an MLP."""
    count = 0
    for i in range(1, len(sizes) - 1):
        count += sizes[i]
    return count


@njit
def widest(sizes):
    """The largest number of inputs of a layer."""
    most = 0
    for i in range(len(sizes) - 1):
        most = max(most, sizes[i])
    return most


@njit
def forward(x, rows, params, sizes, hidden, out):
    """Run an MLP on the first rows of `x`; keep its hidden layers one after the other in `hidden`."""
    last, at, begin, source = len(sizes) - 2, 0, 0, x
    for i in range(last + 1):
        fan_in, fan_out = sizes[i], sizes[i + 1]
        end = at + fan_in * fan_out
        y = out if i == last else hidden[begin : begin + rows * fan_out]
        layer(source, params[at:end], params[end : end + fan_out], y, rows, i < last)
        source, at, begin = y, end + fan_out, begin + rows * fan_out


@njit
def backward(x, rows, hidden, all_rows, row, sizes, grad_output, into, grad_input, scratch):
    """Compute the gradients of a network for the first rows of a pass over `all_rows`.

    Those of its parameters go into `into` and those of its input into `grad_input`, unless these are empty. `scratch`
    has room for two hidden layers of so many rows, `room` numbers each.
    """
    last, room, flip = len(sizes) - 2, len(scratch) // 2, 0
    at, begin, gradient = n_params(sizes), all_rows * hidden_units(sizes), grad_output
    for i in range(last, -1, -1):
        fan_in, fan_out = sizes[i], sizes[i + 1]
        end = at - fan_out
        at, begin = end - fan_in * fan_out, begin - all_rows * fan_in
        source = hidden[begin : begin + rows * fan_in] if i > 0 else x
        if len(into):
            if fan_out < _NARROW:
                _narrow_outer(source, gradient, into[at:end], rows, fan_in, fan_out)
            else:
                product(source, T, gradient, N, into[at:end], fan_in, rows, fan_out)
            _column_sums(gradient, into[end : end + fan_out], rows, fan_out)
        if i == 0 and not len(grad_input):
            return
        back = grad_input if i == 0 else scratch[flip * room : flip * room + rows * fan_in]
        flip = 1 - flip
        product(gradient, N, row[at:end], T, back, rows, fan_out, fan_in)
        if i > 0:
            for k in range(rows * fan_in):
                back[k] = back[k] if source[k] > 0 else np.float32(0)
        gradient = back


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def adam(params, gradient, mean, square, rate, settings):
    """A step of Adam on one network's parameters. `settings` are the count of steps, both betas, epsilon, and the
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
    for k in range(len(params)):
        g = gradient[k] * factor
        m = mean[k] + new * (g - mean[k])
        v = square[k] * old_square + new_square * g * g
        mean[k], square[k] = m if abs(m) > tiny else zero, v if v > tiny else zero
        params[k] -= size * m / (np.sqrt(v) * correction + epsilon)
