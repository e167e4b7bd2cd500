"""Convert transition arrays of any usual layout to the one that the operators use, if it fits into memory."""

import os
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from bsrs.errors import BadInput, unknown

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Layout = Literal["SAS", "ASS"]


def compressed_rows(matrix: Any) -> sparse.csr_array:
    """Return compressed rows with 32-bit indices and duplicates summed."""
    rows = sparse.csr_array(matrix)
    rows.sum_duplicates()
    rows.indices = rows.indices.astype(np.int32, copy=False)
    rows.indptr = rows.indptr.astype(np.int32, copy=False)
    return rows


def canonical(transitions: Any, rewards: Any, layout: Layout | None = None) -> tuple[sparse.csr_array, Floats]:
    """Return the rows of probabilities, (S * A, S), state by state, and the expected rewards, (S, A)."""
    if layout is not None and layout not in get_args(Layout):
        raise unknown("layout", layout, get_args(Layout))
    stacked, shape = _stacked(transitions, "transitions")
    given, reward_shape = _stacked(rewards, "rewards")
    layout = layout or (_layout_of(shape) if len(shape) == 3 else "SAS")
    n_states, n_actions = _sizes(shape, reward_shape, layout)
    # action by action, row a * S + s has to become row s * A + a
    order = None if layout == "SAS" else np.arange(n_states * n_actions).reshape(n_actions, n_states).T.ravel()
    if reward_shape == (n_states, n_actions):  # first: with one state and one action both shapes are (1, 1)
        r = _dense(given)
    elif reward_shape == shape:  # E[r(s, a, s')], row by row
        if sparse.issparse(stacked):
            r = np.asarray(sparse.csr_array(stacked).multiply(given).sum(axis=1)).reshape(-1)
        else:
            r = np.asarray((stacked * _dense(given)).sum(axis=1))
        r = (r if order is None else r[order]).reshape(n_states, n_actions)
    elif reward_shape == (n_states,):
        r = np.repeat(_dense(given).reshape(-1, 1), n_actions, axis=1)
    else:
        raise BadInput(
            f"rewards have shape {reward_shape}; expected ({n_states}, {n_actions}) for states and actions, or {shape}"
        )
    rows = compressed_rows(stacked).astype(np.float64, copy=False)
    rows = rows if order is None else compressed_rows(rows[order])
    return rows, np.ascontiguousarray(r, dtype=np.float64)


def _sizes(shape: tuple[int, ...], reward_shape: tuple[int, ...], layout: Layout) -> tuple[int, int]:
    """Return the numbers of states and actions."""
    n_states = shape[-1]
    n_actions = int(np.prod(shape[:-1])) // n_states
    wanted: tuple[int, ...] = (n_states, n_actions, n_states) if layout == "SAS" else (n_actions, n_states, n_states)
    axes = "(states, actions, states)" if layout == "SAS" else "(actions, states, states)"
    if len(shape) == 2:
        fits = len(reward_shape) != 2 or reward_shape == ((n_states, n_actions) if n_actions == 1 else reward_shape)
        wanted = (n_states * n_actions, n_states) if fits else (reward_shape[0] * reward_shape[1], reward_shape[0])
        axes = f"{wanted} to fit the rewards"
    if shape != wanted:
        raise BadInput(f"transitions have shape {shape}; expected {axes}")
    return n_states, n_actions


def _layout_of(shape: tuple[int, ...]) -> Layout:
    if shape[1] == shape[2] != shape[0]:
        return "ASS"
    if shape[0] == shape[2] != shape[1] or shape == (1, 1, 1):
        return "SAS"
    if shape[0] == shape[1] == shape[2]:
        raise BadInput(
            f"transitions have shape {shape}, which may be (S, A, S) or (A, S, S); say which: layout='SAS' or 'ASS'"
        )
    raise BadInput(f"transitions have shape {shape}; expected (states, actions, states) or (actions, states, states)")


def _stacked(array: Any, what: str) -> tuple[Any, tuple[int, ...]]:
    """Return the array with its leading axes merged, and its shape before."""
    if isinstance(array, (list, tuple)) and any(sparse.issparse(part) for part in array):
        shapes = {part.shape for part in array}
        if len(shapes) != 1:
            raise BadInput(f"{what} are a list of matrices of different shapes, {sorted(shapes)}; expected one shape")
        return sparse.vstack([sparse.csr_array(part) for part in array], format="csr"), (len(array), *shapes.pop())
    if not sparse.issparse(array):
        try:
            array = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{what} cannot be read as an array of numbers: {error}") from None
    shape = tuple(array.shape)
    if not 1 <= len(shape) <= 3 or (what == "transitions" and len(shape) == 1):
        raise BadInput(f"{what} have shape {shape}; expected one for each state, action and next state")
    if not all(shape):
        raise BadInput(f"{what} have shape {shape}; expected at least one state and one action")
    return array.reshape(-1, shape[-1]) if len(shape) == 3 else array, shape


def _dense(array: Any) -> Floats:
    return np.asarray(array.toarray() if sparse.issparse(array) else array, dtype=np.float64)


# --------------------------------------------------------------------------------------------------------------
# Memory: a table's size is known before any of it is allocated.

# The share of the free memory that a table may take; the system and other programs need the rest.
USABLE = 0.9


def free_bytes() -> int:
    """Return the memory that is free without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(nbytes: int, what: str) -> None:
    """BadInput with the size if `what` would not fit into the free memory."""
    free = free_bytes()
    if nbytes > USABLE * free:
        raise BadInput(
            f"{what} would take {_readable(nbytes)}; expected no more than the {_readable(free)} free memory"
        )


def require_table(n_states: int, n_actions: int, width: int) -> None:
    """BadInput if a table with `width` next states per state and action cannot be built here."""
    entries = n_states * n_actions * width
    # While it is built, a transition is held about four times over (12 bytes each), a state and action twice.
    require(52 * entries + 24 * n_states * n_actions + 64 * n_states, f"a table of {n_states:,} states")
    if entries >= 2**31:
        raise BadInput(f"a table of {n_states:,} states has {entries:,} transitions; expected fewer than 2^31")


def _readable(nbytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if nbytes < 1000 or unit == "TB":
            break
        nbytes /= 1000
    return f"{nbytes:.3g} {unit}" if nbytes < 1000 else f"{nbytes:,.0f} {unit}"
