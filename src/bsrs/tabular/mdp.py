"""Finite Markov decision processes, validated and sparse."""

import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from bsrs.errors import BadInput, listed, unknown
from bsrs.naming import is_object_name, object_named
from bsrs.rng import stream
from bsrs.tabular.layouts import Floats, Ints, Layout, canonical, compressed_rows, require_table

__all__ = ["MDP", "Floats", "Ints", "check_gamma"]

# Rows are sums of a few dozen products at most: anything further from one is an error in the data.
ROW_SUM_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False, init=False)
class MDP:
    """A finite MDP with S states and A actions, from dense or sparse arrays: `MDP(transitions, rewards)`.

    A row of `transitions` sums to one, or to zero if the step ends the episode. If a step ends it only sometimes, pass
    `terminates`. The MDP is stored as one sparse matrix, (S * A, S), and expected rewards r(s, a).

    Args:
        transitions: Probabilities of the next state: (S, A, S), (A, S, S), (S * A, S) with row `s * A + a` for each
            state and action, or a list of matrices.
        rewards: (S, A), (S,), or the shape of the transitions if rewards depend on the next state.
        terminates: Probability that a step ends the episode, (S, A).
        start: Distribution of the first state, (S,). The default is uniform.
        layout: "SAS" or "ASS", if the lengths of the three axes are ambiguous.
    """

    transitions: sparse.csr_array  # (S * A, S)
    rewards: Floats  # (S, A)
    terminates: Floats | None = None  # (S, A)
    start: Floats | None = None  # (S,)

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        terminates: npt.ArrayLike | None = None,
        start: npt.ArrayLike | None = None,
        *,
        layout: Layout | None = None,
    ) -> None:
        rows, r = canonical(transitions, rewards, layout)
        ends = None if terminates is None else np.ascontiguousarray(terminates, dtype=np.float64)
        first = None if start is None else np.asarray(start, dtype=np.float64)
        n_states, n_actions = r.shape
        if ends is not None and ends.shape != r.shape:
            raise BadInput(f"terminates has shape {ends.shape}; expected {r.shape} as the rewards")
        if not np.isfinite(r).all():
            state, action = np.argwhere(~np.isfinite(r))[0]
            what = f"the reward of state {state}, action {action} is {r[state, action]}"
            raise BadInput(f"{what}; expected a finite number")
        _check_rows(rows, ends, n_actions)
        if first is not None and (first.shape != (n_states,) or not np.isclose(first.sum(), 1.0)):
            raise BadInput(
                f"start distribution has shape {first.shape} and sum {first.sum():g}; expected ({n_states},) and 1"
            )
        for name, part in (("transitions", rows), ("rewards", r), ("terminates", ends), ("start", first)):
            object.__setattr__(self, name, part)

    @property
    def n_states(self) -> int:
        return int(self.rewards.shape[0])

    @property
    def n_actions(self) -> int:
        return int(self.rewards.shape[1])

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes."""
        p = self.transitions
        parts = [p.data, p.indices, p.indptr, self.rewards, self.terminates, self.start]
        return sum(part.nbytes for part in parts if part is not None)

    @cached_property
    def may_end(self) -> bool:
        """Whether any step can end the episode."""
        if self.terminates is not None and self.terminates.any():
            return True
        return bool((self.transitions.sum(axis=1) < 0.5).any())

    def start_distribution(self) -> Floats:
        """Return the probabilities of the first state, (S,)."""
        return np.full(self.n_states, 1.0 / self.n_states) if self.start is None else self.start

    def termination(self) -> Floats:
        """Return the probability that a step ends the episode, (S, A)."""
        if self.terminates is not None:
            return self.terminates
        return np.asarray(1.0 - self.transitions.sum(axis=1)).reshape(self.rewards.shape).round(8)

    def chain(self, policy: Ints | Floats) -> sparse.csr_array:
        """Return the transition matrix under a policy, (S, S). The policy is (S,) actions or (S, A) probabilities."""
        if policy.ndim == 1:
            return self.transitions[np.arange(self.n_states) * self.n_actions + policy.astype(np.int64)]
        pointers = np.arange(0, policy.size + 1, self.n_actions)
        shape = (self.n_states, policy.size)
        weights = sparse.csr_array((policy.ravel(), np.arange(policy.size), pointers), shape=shape)
        return compressed_rows(weights @ self.transitions)

    def following(self, policy: Ints | Floats) -> "MDP":
        """Return the MDP in which this policy is the only action. The policy is as for `chain`."""
        taken = np.eye(self.n_actions)[policy] if policy.ndim == 1 else policy
        rewards, ends = ((taken * part).sum(axis=1, keepdims=True) for part in (self.rewards, self.termination()))
        return MDP(self.chain(policy), rewards, ends, self.start)

    @classmethod
    def from_gymnasium(cls, env: Any, **options: Any) -> Self:
        """Read a toy-text env (FrozenLake, CliffWalking, Taxi), by its id or as an object with a table `P`."""
        table, start = _gymnasium_table(env, options)
        n_states, n_actions = len(table), len(table[0])
        rows, columns, probabilities = [], [], []
        rewards = np.zeros((n_states, n_actions))
        terminates = np.zeros((n_states, n_actions))
        for state in range(n_states):
            for action in range(n_actions):
                for probability, next_state, reward, terminated in table[state][action]:
                    rewards[state, action] += probability * reward
                    if terminated:
                        terminates[state, action] += probability
                    else:
                        rows.append(state * n_actions + action)
                        columns.append(next_state)
                        probabilities.append(probability)
        shape = (n_states * n_actions, n_states)
        return cls(
            compressed_rows(sparse.coo_array((probabilities, (rows, columns)), shape=shape)), rewards, terminates, start
        )

    @classmethod
    def garnet(cls, n_states: int, n_actions: int, branching: int, *, seed: int) -> Self:
        """Draw a random MDP: each state and action leads to `branching` states, and rewards are standard normal."""
        if not 1 <= branching <= n_states:
            raise BadInput(f"branching is {branching}; expected 1 to {n_states}, the number of states")
        require_table(n_states, n_actions, branching)
        draw = stream(seed, "garnet")
        n_rows = n_states * n_actions
        targets = _distinct_rows(draw, n_rows, branching, n_states)
        cuts = np.sort(draw.random((n_rows, branching - 1)), axis=1)
        probabilities = np.diff(cuts, axis=1, prepend=0.0, append=1.0)
        pointers = np.arange(0, n_rows * branching + 1, branching, dtype=np.int32)
        transitions = sparse.csr_array((probabilities.ravel(), targets.ravel(), pointers), shape=(n_rows, n_states))
        return cls(transitions, draw.standard_normal((n_states, n_actions)))


def is_file_or_factory(name: str) -> bool:
    """Whether the name is that of a table of the user's own: a .npz or .json file, or MODULE:FUNCTION."""
    return name.endswith((".npz", ".json")) or is_object_name(name)


def read_mdp(name: str) -> MDP:
    """A table from a file, or from a Python function that returns an MDP.

    A file has the arguments of `MDP` by name: `transitions` and `rewards`, and `terminates`, `start` and `layout` where
    they are needed; a .npz file as arrays (`numpy.savez`), a .json file as nested lists.
    """
    if is_object_name(name):
        factory = object_named(name, "mdp")
        made = factory() if callable(factory) else factory
        if not isinstance(made, MDP):
            raise BadInput(f"{name} made a {type(made).__name__}; expected an MDP, as bsrs.tabular.MDP makes it")
        return made
    try:
        if name.endswith(".npz"):
            with np.load(name, allow_pickle=False) as file:
                parts: dict[str, Any] = dict(file)
        else:
            parts = json.loads(Path(name).read_text())
    except FileNotFoundError:
        raise BadInput(f"there is no file {name}") from None
    except (ValueError, OSError, zipfile.BadZipFile, RecursionError) as error:
        raise BadInput(f"{name} cannot be read: {error}") from None
    known = {"transitions", "rewards", "terminates", "start", "layout"}
    if not isinstance(parts, dict) or not {"transitions", "rewards"} <= parts.keys() <= known:
        found = listed(sorted(parts)) if isinstance(parts, dict) else type(parts).__name__
        raise BadInput(f"{name} has {found}; expected transitions and rewards, and maybe terminates, start and layout")
    layout = None if parts.get("layout") is None else str(parts["layout"])
    return MDP(**{**parts, "layout": layout})


def check_gamma(gamma: float) -> float:
    """The discount factor, if it is one."""
    if not 0.0 <= gamma < 1.0:
        raise BadInput(f"gamma is {gamma}; expected a number in [0, 1)")
    return float(gamma)


def _check_rows(transitions: sparse.csr_array, terminates: Floats | None, n_actions: int) -> None:
    if transitions.nnz and not transitions.data.min() >= 0:
        raise BadInput("transitions hold a negative probability or NaN; expected numbers from 0 to 1")
    sums = np.asarray(transitions.sum(axis=1))
    if terminates is not None:
        total, allowed = sums + terminates.ravel(), "1 together with the probability of termination"
    else:
        total, allowed = np.where(sums == 0, 1.0, sums), "1, or 0 where the step terminates"
    wrong = np.abs(total - 1.0) > ROW_SUM_TOLERANCE
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        state, action = divmod(row, n_actions)
        raise BadInput(
            f"the probabilities of state {state}, action {action} sum to {total[row]:.9g}; expected {allowed}"
        )


def _gymnasium_table(env: Any, options: dict[str, Any]) -> tuple[Any, Floats | None]:
    import gymnasium

    if isinstance(env, str):
        try:
            env = gymnasium.make(env, **options)
        except gymnasium.error.Error as error:
            toy_text = [name for name, spec in gymnasium.registry.items() if "toy_text" in str(spec.entry_point)]
            raise unknown("env", env, toy_text) from error
    bare = env.unwrapped
    try:
        return bare.P, np.asarray(bare.initial_state_distrib, dtype=np.float64)
    except AttributeError:
        raise BadInput(
            f"env {env.spec.id if env.spec else env!r} has no transition table P; "
            "expected a toy-text env such as FrozenLake-v1, CliffWalking-v1 or Taxi-v4"
        ) from None


def _distinct_rows(draw: np.random.Generator, n_rows: int, width: int, high: int) -> Ints:
    """(n_rows, width) int32, each row `width` distinct numbers below `high`, sorted."""
    if 4 * width > high:
        return np.sort(draw.permuted(np.tile(np.arange(high, dtype=np.int32), (n_rows, 1)), axis=1)[:, :width], axis=1)
    rows = np.sort(draw.integers(high, size=(n_rows, width), dtype=np.int32), axis=1)
    while (repeated := (np.diff(rows, axis=1) == 0).any(axis=1)).any():
        rows[repeated] = np.sort(draw.integers(high, size=(int(repeated.sum()), width), dtype=np.int32), axis=1)
    return rows
