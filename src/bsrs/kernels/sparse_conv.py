"""A 3x3 convolution of images that are mostly zeros, as MinAtar's are: what is zero costs nothing.

Where a pixel is not zero, it adds its weights to the outputs around it. In a row of outputs these lie side by side, and
so do their weights once the kernel's columns are turned round: a row is one loop over many numbers at once.
"""

# mypy: disable-error-code="no-untyped-def"

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

KERNEL, FEATURES = 3, 16
_U = np.uint32  # unsigned indices spare numba the check for negative ones


def row_spans(obs_shape: Sequence[int]) -> NDArray[np.uint32]:
    """For each pixel and row of the kernel: where the outputs begin, where their weights do, and how many they are."""
    channel, y, x, up = np.indices((*obs_shape, KERNEL))
    rows, columns = (side - KERNEL + 1 for side in obs_shape[1:])
    left = x - KERNEL + 1
    first, last, row = np.maximum(left, 0), np.minimum(x, columns - 1), y - up
    width = (last - first + 1) * ((row >= 0) & (row < rows))
    spans = np.stack((row * columns + first, (channel * KERNEL + up) * KERNEL + first - left, width), axis=-1)
    return np.asarray(spans * (width > 0)[..., None] * FEATURES, np.uint32).reshape(-1, KERNEL, 3)


@njit
def _turn(numbers, turned, back):
    """Copy weights (row, column, C, FEATURES) into the order (C, row, column from the right, FEATURES), or back."""
    channels = len(turned) // (KERNEL * KERNEL * FEATURES)
    for row in range(KERNEL):
        for column in range(KERNEL):
            for channel in range(channels):
                at = ((row * KERNEL + column) * channels + channel) * FEATURES
                to = ((channel * KERNEL + row) * KERNEL + KERNEL - 1 - column) * FEATURES
                for k in range(FEATURES):
                    if back:
                        numbers[at + k] = turned[to + k]
                    else:
                        turned[to + k] = numbers[at + k]


@njit
def _nonzero(image, active):
    """Put the places of what is not zero into `active`; how many they are."""
    count = _U(0)
    for at in range(len(image)):
        active[count] = at
        count += _U(image[at] != 0)
    return count


@njit(fastmath={"contract"})
def convolve(spans, images, numbers, out):
    """relu(convolution) of `images` (B, C * H * W) into `out` (B, positions * FEATURES); `numbers` are the weights
    (row, column, C, FEATURES) and the bias (FEATURES,)."""
    rows, size = out.shape
    start, sums = np.empty(size, np.float32), np.empty(size, np.float32)
    active = np.empty(images.shape[1] + 1, np.uint32)
    turned = np.empty(len(numbers) - FEATURES, np.float32)
    _turn(numbers, turned, False)
    for k in range(size):
        start[k] = numbers[len(numbers) - FEATURES + k % FEATURES]
    for b in range(rows):
        for k in range(size):
            sums[k] = start[k]
        for i in range(_nonzero(images[b], active)):
            at = active[i]
            value = images[b, at]
            for row in range(KERNEL):
                place, of_weight = spans[at, row, 0], spans[at, row, 1]
                for k in range(spans[at, row, 2]):
                    sums[place + _U(k)] += value * turned[of_weight + _U(k)]
        result = out[b]
        for k in range(size):
            result[k] = max(sums[k], np.float32(0))


@njit(fastmath={"contract"})
def gradient(spans, images, out, grad_out, into):
    """Of the numbers, given that of the first rows of `out`."""
    rows, size = grad_out.shape
    sums, bias, grad = np.zeros(len(into) - FEATURES, np.float32), into[-FEATURES:], np.empty(size, np.float32)
    active = np.empty(images.shape[1] + 1, np.uint32)
    for k in range(FEATURES):
        bias[k] = 0
    for b in range(rows):
        for k in range(size):
            grad[k] = grad_out[b, k] if out[b, k] > 0 else np.float32(0)
        for k in range(0, size, FEATURES):
            for feature in range(FEATURES):
                bias[feature] += grad[k + feature]
        for i in range(_nonzero(images[b], active)):
            at = active[i]
            value = images[b, at]
            for row in range(KERNEL):
                place, of_weight = spans[at, row, 0], spans[at, row, 1]
                for k in range(spans[at, row, 2]):
                    sums[of_weight + _U(k)] += value * grad[place + _U(k)]
    _turn(into, sums, True)
