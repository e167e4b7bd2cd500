from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

from bsrs.errors import BadInput
from bsrs.tabular import MDP, GridMap, grid_mdp
from bsrs.tabular.grids import named_mdp


class TestBadInput:
    def test_row_that_does_not_sum_to_one(self):
        with pytest.raises(BadInput, match=r"state 1, action 0 sum to 0.9; expected 1"):
            MDP([[[0.0, 1.0]], [[0.4, 0.5]]], [[0.0], [0.0]])

    def test_termination_that_does_not_make_up_for_it(self):
        with pytest.raises(BadInput, match=r"state 0, action 0 sum to 0.9.*termination"):
            MDP([[[0.7]]], [[0.0]], terminates=[[0.2]])

    def test_negative_probability(self):
        with pytest.raises(BadInput, match="negative"):
            MDP([[[1.5, -0.5]], [[0.0, 1.0]]], [[0.0], [0.0]])

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_rewards_not_finite(self, bad):
        with pytest.raises(BadInput, match=r"reward of state 1, action 0 is (nan|inf)"):
            MDP([[[0.0, 1.0]], [[1.0, 0.0]]], [[0.0], [bad]])

    @pytest.mark.parametrize(
        ("transitions", "rewards"),
        [([[[1.0, 0.0]]], [[0.0]]), ([[[1.0]]], [[0.0, 0.0]]), ([1.0], [[0.0]])],
    )
    def test_shapes(self, transitions, rewards):
        with pytest.raises(BadInput, match="expected"):
            MDP(transitions, rewards)

    def test_sparse_transitions_of_another_size(self):
        with pytest.raises(BadInput, match=r"expected \(4, 2\)"):
            MDP(sparse.csr_array(np.eye(2)), np.zeros((2, 2)))

    def test_start_distribution(self):
        with pytest.raises(BadInput, match="start"):
            MDP([[[1.0]]], [[0.0]], start=[0.5])

    def test_unknown_letter(self):
        with pytest.raises(BadInput, match=r"row 2 of the map has the unknown letter 'X'"):
            GridMap.parse("FFG\nFXF")

    def test_ragged_map(self):
        with pytest.raises(BadInput, match="row 2 of the map has 2 cells; expected 3"):
            GridMap.parse("FFG\nFF")

    def test_empty_map_and_map_without_a_goal(self):
        with pytest.raises(BadInput, match="empty"):
            GridMap.parse(" \n")
        with pytest.raises(BadInput, match="no goal"):
            grid_mdp(GridMap.parse("FSF"))

    def test_unknown_names(self):
        with pytest.raises(BadInput, match="unknown map 'papr': did you mean paper"):
            named_mdp("papr")
        with pytest.raises(BadInput, match="unknown env 'FrozenLak-v1': did you mean FrozenLake"):
            named_mdp("FrozenLak-v1")
        with pytest.raises(BadInput, match="no transition table"):
            named_mdp("CartPole-v1")
        with pytest.raises(BadInput, match="garnet:STATES"):
            named_mdp("garnet:5")

    def test_a_missing_map_file_is_said_to_be_missing(self):
        for name in ("maze.txt", "maps/maze"):
            with pytest.raises(BadInput, match=f"map file {name} does not exist"):
                grid_mdp(name)

    def test_slip(self):
        with pytest.raises(BadInput, match="slip is 1"):
            grid_mdp("paper", slip=1.5)


class TestGrids:
    def test_the_papers_grid(self):
        grid = GridMap.named("paper")
        assert grid.cells.shape == (7, 7)
        assert grid.n_states == 49 - 10
        mdp = grid_mdp(grid)
        goal = grid.states_of("G")[0]
        assert (mdp.rewards[goal] == 1).all()
        assert mdp.rewards.sum() == 4
        assert mdp.chain(np.zeros(39, dtype=int))[[goal]].toarray()[0, goal] == 1  # loops
        assert mdp.start_distribution()[grid.states_of("S")[0]] == 1

    def test_moves_by_hand(self):
        grid = GridMap.parse("SF WG")  # states 0 1 / wall 2
        np.testing.assert_array_equal(grid.neighbours(), [[0, 1, 0, 0], [1, 1, 2, 0], [1, 2, 2, 2]])

    def test_slip_by_hand(self):
        right = grid_mdp(GridMap.parse("FG FF"), slip=0.2).transitions[[1]].toarray()[0]
        np.testing.assert_allclose(right, [0.1, 0.8, 0.1, 0.0])  # from the corner: up stays, right, down

    @pytest.mark.parametrize("slip", [0.0, 0.3])
    def test_goals(self, slip):
        grid = GridMap.named("paper")
        goal, start = grid.states_of("G")[0], grid.states_of("S")[0]
        assert (grid_mdp(grid, slip=slip, goal="terminate").termination()[goal] == 1).all()
        assert grid_mdp(grid, slip=slip, goal="terminate").termination().sum() == 4
        reset = grid_mdp(grid, slip=slip, goal="reset").transitions[[4 * goal + 2]].toarray()[0]
        assert reset[start] == 1
        assert grid_mdp(grid, slip=slip).termination().sum() == 0

    def test_sizes_and_files(self, tmp_path):
        assert GridMap.named("20x30").n_states == 600
        (tmp_path / "mine.txt").write_text("SFG\n")
        assert named_mdp(str(tmp_path / "mine.txt")).n_states == 3

    def test_compact(self):
        mdp = grid_mdp("100x100")
        assert mdp.transitions.indices.dtype == mdp.transitions.indptr.dtype == np.int32
        assert mdp.nbytes < 100 * 100 * 4 * (8 + 8 + 4 + 4) + 200_000

    def test_random_rewards_repeat_by_seed(self):
        one, same, other = (grid_mdp("5x5", random_rewards=seed).rewards for seed in (1, 1, 2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_policy_text(self):
        assert GridMap.parse("SG WF").policy_text(np.array([1, 0, 0])) == "→ G\n█ ↑"


class TestGymnasium:
    @pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
    def test_agrees_with_the_env_by_sampling(self, name):
        env = gymnasium.make(name)
        mdp = MDP.from_gymnasium(env)
        assert (mdp.n_states, mdp.n_actions) == (env.observation_space.n, env.action_space.n)
        env.action_space.seed(0)
        state, _ = env.reset(seed=0)
        for _ in range(300):
            action = env.action_space.sample()
            next_state, reward, terminated, truncated, _ = env.step(action)
            if terminated:
                assert mdp.termination()[state, action] > 0
            else:
                assert mdp.transitions[[state * mdp.n_actions + action]].toarray()[0, next_state] > 0
            if mdp.termination()[state, action] in (0, 1) and name != "FrozenLake-v1":
                assert mdp.rewards[state, action] == reward
            state = env.reset()[0] if terminated or truncated else next_state

    def test_options(self):
        assert MDP.from_gymnasium("FrozenLake-v1", map_name="8x8").n_states == 64


class TestGarnet:
    @given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 5), st.data())
    def test_branching(self, n_states, n_actions, seed, data):
        branching = data.draw(st.integers(1, n_states))
        mdp = MDP.garnet(n_states, n_actions, branching, seed=seed)
        assert (np.diff(mdp.transitions.indptr) == branching).all()
        assert mdp.transitions.has_canonical_format or mdp.transitions.nnz == n_states * n_actions * branching
        assert all(len(set(row)) == branching for row in mdp.transitions.indices.reshape(-1, branching))

    def test_seeds(self):
        one, same, other = (MDP.garnet(10, 2, 3, seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(one.rewards, same.rewards)
        assert not np.array_equal(one.rewards, other.rewards)
        with pytest.raises(BadInput, match="branching is 11"):
            MDP.garnet(10, 2, 11, seed=0)


def test_chain_of_a_stochastic_policy():
    mdp = MDP.garnet(6, 3, 2, seed=0)
    policy = np.random.default_rng(0).dirichlet(np.ones(3), size=6)
    dense = mdp.transitions.toarray().reshape(6, 3, 6)
    np.testing.assert_allclose(mdp.chain(policy).toarray(), np.einsum("sa,sat->st", policy, dense))
    only = mdp.following(policy)
    np.testing.assert_allclose(only.transitions.toarray(), mdp.chain(policy).toarray())
    np.testing.assert_allclose(only.rewards[:, 0], (policy * mdp.rewards).sum(axis=1))


def test_rewards_that_depend_on_the_next_state():
    mdp = MDP([[[0.25, 0.75]], [[0.0, 1.0]]], [[[4.0, 8.0]], [[0.0, 1.0]]])
    np.testing.assert_allclose(mdp.rewards, [[7.0], [1.0]])


class TestLayouts:
    """One table, however its arrays are laid out."""

    p = np.random.default_rng(0).dirichlet(np.ones(4), size=(4, 3))  # (S, A, S)
    r = np.random.default_rng(1).standard_normal((4, 3))

    def assert_same(self, mdp: MDP, rewards: np.ndarray | None = None) -> None:
        np.testing.assert_allclose(mdp.transitions.toarray(), self.p.reshape(12, 4))
        np.testing.assert_allclose(mdp.rewards, self.r if rewards is None else rewards)
        assert mdp.transitions.data.dtype == np.float64
        assert mdp.transitions.indices.dtype == mdp.transitions.indptr.dtype == np.int32

    def test_dense(self):
        self.assert_same(MDP(self.p, self.r))
        self.assert_same(MDP(self.p.transpose(1, 0, 2), self.r))
        self.assert_same(MDP(self.p.reshape(12, 4), self.r))
        self.assert_same(MDP(self.p.transpose(1, 0, 2).reshape(12, 4), self.r, layout="ASS"))
        self.assert_same(MDP(self.p.tolist(), self.r.tolist()))

    def test_sparse(self):
        self.assert_same(MDP(sparse.csc_matrix(self.p.reshape(12, 4)), self.r))
        self.assert_same(MDP([sparse.csr_matrix(self.p[:, a]) for a in range(3)], self.r))
        self.assert_same(MDP([sparse.coo_array(self.p[s]) for s in range(4)], self.r))
        self.assert_same(MDP(sparse.coo_array(self.p), self.r))

    def test_rewards(self):
        each = np.random.default_rng(2).standard_normal(self.p.shape)
        expected = (self.p * each).sum(axis=2)
        self.assert_same(MDP(self.p, each), expected)
        self.assert_same(MDP(self.p.transpose(1, 0, 2), each.transpose(1, 0, 2)), expected)
        by_action = [sparse.csr_array(self.p[:, a]) for a in range(3)]
        self.assert_same(MDP(by_action, [sparse.csr_array(each[:, a]) for a in range(3)]), expected)
        self.assert_same(MDP(self.p, self.r[:, 0]), np.repeat(self.r[:, :1], 3, axis=1))

    def test_as_many_actions_as_states(self):
        p = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 3))
        with pytest.raises(BadInput, match=r"may be \(S, A, S\) or \(A, S, S\); say which: layout='SAS' or 'ASS'"):
            MDP(p, np.zeros((3, 3)))
        other = MDP(p.transpose(1, 0, 2), np.eye(3), layout="ASS")
        np.testing.assert_array_equal(other.transitions.toarray(), p.reshape(9, 3))
        np.testing.assert_array_equal(other.rewards, np.eye(3))

    @pytest.mark.parametrize("shape", [(2, 3, 4), (5, 4), (4,), (0, 0, 0)])
    def test_neither(self, shape):
        with pytest.raises(BadInput, match="transitions have shape"):
            MDP(np.zeros(shape), np.zeros((4, 3)))

    def test_not_numbers(self):
        with pytest.raises(BadInput, match="rewards cannot be read as an array of numbers"):
            MDP(self.p, [["one"]])
        with pytest.raises(BadInput, match="unknown layout 'SSA'"):
            MDP(self.p, self.r, layout="SSA")
        with pytest.raises(BadInput, match=r"terminates has shape \(4,\); expected \(4, 3\)"):
            MDP(self.p, self.r, np.zeros(4))


class TestMapsFromOneString:
    def test_rows_are_separated_by_any_white_space(self, tmp_path):
        (tmp_path / "maze.txt").write_text("SFW\nFFG\n")
        for text in ("SFW FFG", "SFW\nFFG", "\n  SFW\n  FFG\n", str(tmp_path / "maze.txt")):
            mdp = grid_mdp(text)
            assert (mdp.n_states, mdp.rewards[:, 0].tolist()) == (5, [0, 0, 0, 0, 1])
        assert grid_mdp("SFG").n_states == 3

    def test_what_the_letters_earn_and_where_an_episode_ends(self):
        mdp = grid_mdp("S3c PFG", goal="terminate")
        np.testing.assert_allclose(mdp.rewards[:, 0], [0, 0.3, -0.3, -1, 0, 1])
        np.testing.assert_array_equal(mdp.termination()[:, 0], [0, 0, 0, 1, 0, 1])


class TestTablesOfYourOwn:
    transitions = np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.5, 0.5]]])
    rewards = np.array([[0.0, 0.1], [1.0, 0.0]])

    def write(self, folder, kind, **more) -> str:
        path = folder / f"table.{kind}"
        parts = {"transitions": self.transitions, "rewards": self.rewards, "layout": "SAS", **more}
        if kind == "npz":
            np.savez(path, **parts)
        else:
            path.write_text(json.dumps({k: v if isinstance(v, str) else v.tolist() for k, v in parts.items()}))
        return str(path)

    @pytest.mark.parametrize("kind", ["npz", "json"])
    def test_files(self, tmp_path, kind):
        mdp = named_mdp(self.write(tmp_path, kind, start=np.array([0.25, 0.75])))
        np.testing.assert_array_equal(mdp.transitions.toarray(), self.transitions.reshape(4, 2))
        np.testing.assert_array_equal(mdp.rewards, self.rewards)
        np.testing.assert_array_equal(mdp.start_distribution(), [0.25, 0.75])
        assert mdp.may_end
        with pytest.raises(BadInput, match="has extra, layout, rewards, transitions; expected transitions and rewards"):
            named_mdp(self.write(tmp_path, kind, extra=np.zeros(1)))

    def test_functions(self):
        assert named_mdp(f"{__name__}:two_states").n_states == 2
        with pytest.raises(BadInput, match="made a list; expected an MDP"):
            named_mdp("builtins:list")

    def test_files_that_are_none(self, tmp_path):
        (tmp_path / "bad.npz").write_bytes(b"PK not a zip")
        (tmp_path / "bad.json").write_text("[1, 2")
        (tmp_path / "list.json").write_text("[1, 2]")
        np.savez(tmp_path / "objects.npz", transitions=np.array([{}], dtype=object), rewards=np.zeros(1))
        for name, words in [("bad.npz", "cannot be read"), ("bad.json", "cannot be read"), ("list.json", "has list"),
                            ("objects.npz", "cannot be read"), ("none.json", "there is no file")]:  # fmt: skip
            with pytest.raises(BadInput, match=words):
                named_mdp(str(tmp_path / name))

    @pytest.mark.parametrize("name", ["FrozenLake-v1", "garnet:5:2:2:0", f"{__name__}:two_states"])
    def test_slip_and_goal_are_for_maps(self, name):
        with pytest.raises(BadInput, match=r"slip 0\.1 was given with the table .*; expected it with a map only"):
            named_mdp(name, slip=0.1)
        with pytest.raises(BadInput, match="goal reset was given"):
            named_mdp(name, goal="reset")


def two_states() -> MDP:
    return MDP(TestTablesOfYourOwn.transitions, TestTablesOfYourOwn.rewards, layout="SAS")
