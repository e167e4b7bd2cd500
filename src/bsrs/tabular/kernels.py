"""The operators for large tables: one fused, parallel pass over the transitions.

Expectation, maximum, relaxation and the range of the residual happen while a state's rows are in the cache, so a
step costs little more than streaming the table through memory once. What a row needs is kept small: 32-bit columns,
no row pointers where all rows are equally wide, no probabilities where every step is certain, float32 on request.

Threads take contiguous blocks of states and share nothing, so results do not depend on their number.
"""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import njit, prange

from bsrs.tabular.layouts import require
from bsrs.tabular.mdp import MDP, Floats, Ints

# Rows may be padded to one width if that adds no more than this share of entries, and the width stays small.
PADDING = 0.25
WIDEST = 32

_U = np.uint64  # unsigned indices spare numba the check for negative ones


@dataclass(frozen=True, eq=False)
class Table:
    """An MDP, or the Markov chain of a policy (one action), laid out for the kernels."""

    n_states: int
    n_actions: int
    columns: Ints  # next states, row by row
    weights: Floats | None  # their probabilities; None: all are one
    rewards: Floats  # (S * A,)
    pointers: Ints | None  # where rows begin; None: all rows have `width` entries
    width: int

    @property
    def nbytes(self) -> int:
        """Bytes that one pass reads, without the value function."""
        parts = (self.columns, self.weights, self.rewards, self.pointers)
        return sum(part.nbytes for part in parts if part is not None)

    def layout(self) -> tuple[Any, ...]:
        """Return the table as the kernels' arguments.

        The number of actions and the width go in as the lengths of tuples: to numba a tuple's length is part of its
        type, so the inner loops are compiled for it and unrolled, which doubles the speed on narrow rows.
        """
        return (
            self.columns,
            self.weights,
            self.rewards,
            self.pointers,
            (0,) * self.n_actions if self.n_actions <= WIDEST else np.empty(self.n_actions, dtype=np.int8),
            (0,) * self.width if self.pointers is None else (),
        )


def compact(mdp: MDP, dtype: Any = np.float64) -> Table:
    """Lay an MDP out for the kernels, in the MDP's own arrays where possible."""
    rows = mdp.transitions
    lengths = np.diff(rows.indptr)
    width = int(lengths.max(initial=1))
    columns, weights = rows.indices.view(np.uint32), rows.data
    pointers: Ints | None = rows.indptr.view(np.uint32)
    if width <= WIDEST and width * len(lengths) <= (1 + PADDING) * max(rows.nnz, 1):
        if lengths.min() < width:
            require(len(lengths) * width * 12, "the table with rows of one width")
            columns, weights = _pad(columns, weights, pointers, width, mdp.n_actions)
        pointers = None
    certain = bool((weights == 1.0).all())
    return Table(
        mdp.n_states,
        mdp.n_actions,
        columns,
        None if certain else weights.astype(dtype, copy=False),
        mdp.rewards.ravel().astype(dtype, copy=False),
        pointers,
        width,
    )


def set_threads(threads: int | None) -> int:
    """Use this many threads, or all if None, and return the number in use."""
    if threads is not None:
        numba.set_num_threads(max(1, min(threads, numba.config.NUMBA_NUM_THREADS)))
    return int(numba.get_num_threads())


def back_up(
    table: Table, gamma: float, value: Floats, out: Floats, *, omega: float = 1.0, policy: Ints | None = None
) -> tuple[float, float]:
    """Set out = value + omega (B value - value) and return the least and the greatest entry of B value - value.

    The first best action of every state is written to `policy`.
    """
    low, high = np.empty((2, numba.get_num_threads()), dtype=table.rewards.dtype)  # one block of states per thread
    number = value.dtype.type
    _back_up(*table.layout(), number(gamma), number(omega), value, out, policy, low, high)
    return float(low.min()), float(high.max())


def action_values(table: Table, gamma: float, value: Floats, q: Floats) -> None:
    """Set q = r + gamma E value(s'), (S, A)."""
    _action_values(*table.layout(), value.dtype.type(gamma), value, q)


def restrict(table: Table, policy: Ints) -> Table:
    """Return the Markov chain of a policy as a table with one action."""
    rows = np.arange(table.n_states) * table.n_actions + policy
    if table.pointers is None:
        pointers = None
        entries = (rows[:, None] * table.width + np.arange(table.width)).ravel()
    else:
        first, last = table.pointers[rows].astype(np.int64), table.pointers[rows + 1].astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(last - first)])
        entries = np.arange(starts[-1]) + np.repeat(first - starts[:-1], last - first)
        pointers = starts.astype(np.uint32)
    weights = None if table.weights is None else table.weights[entries]
    return Table(table.n_states, 1, table.columns[entries], weights, table.rewards[rows], pointers, table.width)


# --------------------------------------------------------------------------------------------------------------
# The kernels. Tests for None are decided when a kernel is compiled, once for each kind of table.


@njit(inline="always")
def _row_value(columns, weights, pointers, widths, row, value):  # type: ignore[no-untyped-def]
    """E value(s') along one row."""
    total = value.dtype.type(0)
    if pointers is None:
        first = row * _U(len(widths))
        for j in range(_U(len(widths))):
            if weights is None:
                total += value[columns[first + j]]
            else:
                total += weights[first + j] * value[columns[first + j]]
    else:
        for j in range(_U(pointers[row]), _U(pointers[row + _U(1)])):
            if weights is None:
                total += value[columns[j]]
            else:
                total += weights[j] * value[columns[j]]
    return total


@njit(parallel=True, cache=True, nogil=True)
def _back_up(columns, weights, rewards, pointers, actions, widths, gamma, omega, value, out, policy, low, high):  # type: ignore[no-untyped-def]
    n_states, n_blocks, n_actions = value.size, low.size, _U(len(actions))
    for block in prange(n_blocks):
        least, greatest = np.inf, -np.inf
        for s in range(_U(n_states * block // n_blocks), _U(n_states * (block + 1) // n_blocks)):
            best, best_action = -np.inf, _U(0)
            for a in range(n_actions):
                row = s * n_actions + a
                q = rewards[row] + gamma * _row_value(columns, weights, pointers, widths, row, value)
                if q > best:
                    best, best_action = q, a  # type: ignore[assignment]
            change = best - value[s]
            out[s] = value[s] + omega * change
            if policy is not None:
                policy[s] = best_action
            least, greatest = min(least, change), max(greatest, change)
        low[block], high[block] = least, greatest


@njit(parallel=True, cache=True, nogil=True)
def _action_values(columns, weights, rewards, pointers, actions, widths, gamma, value, q):  # type: ignore[no-untyped-def]
    n_actions = _U(len(actions))
    for state in prange(value.size):
        s = _U(state)
        for a in range(n_actions):
            row = s * n_actions + a
            q[s, a] = rewards[row] + gamma * _row_value(columns, weights, pointers, widths, row, value)


@njit(parallel=True, cache=True, nogil=True)
def _pad(columns, weights, pointers, width, n_actions):  # type: ignore[no-untyped-def]
    """Fill rows up with probability zero of staying in the same state, whose value is in the cache anyway."""
    n_rows = len(pointers) - 1
    new_columns, new_weights = np.empty(n_rows * width, dtype=np.uint32), np.zeros(n_rows * width)
    for row in prange(n_rows):
        new_columns[row * width : (row + 1) * width] = row // n_actions
        first, n_entries = pointers[row], pointers[row + 1] - pointers[row]
        new_columns[row * width : row * width + n_entries] = columns[first : first + n_entries]
        new_weights[row * width : row * width + n_entries] = weights[first : first + n_entries]
    return new_columns, new_weights
