"""Faults that a run must survive or report: no endless restarts, no lost checkpoints, no tracebacks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from bsrs.agents.agent import State
from bsrs.cli import main
from bsrs.config.agents import DQNConfig, TD3Config
from bsrs.config.sweep import RunOptions
from bsrs.envs.checking import check_env
from bsrs.envs.given import env_name
from bsrs.errors import BadInput, EnvFault
from bsrs.export import export_policy
from bsrs.report import read_study, write_report
from bsrs.run import Records, make_agent, run
from bsrs.store import checkpoint
from bsrs.store.read import checkpoints, read_result
from bsrs.store.run import TRACEBACK, Run
from bsrs.store.table import list_runs
from bsrs.tabular.mdp import MDP
from bsrs.tabular.solve import solve
from bsrs.train import Loop
from bsrs.writing import Denied, Exhausted
from run_folders import config, write_run
from sweeping import HereExecutor, Notes, begin, finished, metrics, small_sweep

SWEEP = small_sweep()
SMALL: dict[str, Any] = {
    "steps": 200, "learning_starts": 50, "buffer_size": 100, "batch_size": 4, "hidden": (4,), "log_every": 50,
    "eval_every": 0, "eval_episodes": 1,
}  # fmt: skip
OPTIONS = RunOptions(resume=True, threads=1, checkpoint_every=60, tensorboard=False)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What `bsrs WORDS...` prints when it refuses: one sentence, exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------
# Denial and exhaustion are not damage


def test_a_folder_in_the_way_stops_the_run_at_once(tmp_path: Path) -> None:
    folder = begin(expand_first(), tmp_path)
    (folder / "model.safetensors.new").mkdir()
    (folder / "model.safetensors.new" / "thesis.tex").write_text("years of work")
    with pytest.raises(Denied, match="model"):
        run([expand_first()], [folder], OPTIONS)
    assert (folder / "model.safetensors.new" / "thesis.tex").exists()
    assert not (folder / "checkpoint.damaged").exists()


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), MemoryError(), PermissionError(13, "no")]
)
def test_a_passing_want_of_resources_keeps_the_checkpoint(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finished(small_sweep(eta=(0.0,)), tmp_path / "whole")
    folder = begin(expand_first(), tmp_path / "runs")
    before = checkpoints(folder)

    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises((BadInput, MemoryError, OSError)):
        run([expand_first()], [folder], OPTIONS)
    monkeypatch.undo()
    assert checkpoints(folder) == before
    run([expand_first()], [folder], OPTIONS)
    assert metrics(tmp_path / "runs") == expected


def test_a_listing_does_not_call_runs_damaged_when_files_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0])

    def full(*arguments: Any, **options: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(Exhausted, match="Too many open files"):
        list_runs(tmp_path)


def test_sizes_are_compared_before_checksums(tmp_path: Path) -> None:
    """Reading eight terabytes of zeros would take hours."""
    (name,) = finished(small_sweep(eta=(0.0,)), tmp_path)
    os.truncate(tmp_path / name / "timing.jsonl", 2**43)
    assert [status.state for status in list_runs(tmp_path)] == ["damaged"]


def expand_first() -> Any:
    from bsrs.sweep.plan import expand

    return expand(SWEEP)[0]


# --------------------------------------------------------------------------------------------------------------
# Populations


def population(tmp_path: Path, **fields: Any) -> tuple[list[DQNConfig], list[Path]]:
    configs = [DQNConfig(env="CartPole-v1", eta=eta, **{**SMALL, **fields}) for eta in (0.0, 1.0)]
    return configs, [tmp_path / str(config.eta) for config in configs]


class Stop(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("member", [0, 1])
def test_a_population_killed_between_two_members_checkpoints_resumes_exactly(
    tmp_path: Path, member: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, whole = population(tmp_path / "whole")
    run(configs, whole, OPTIONS)
    _, folders = population(tmp_path / "killed")
    real, calls = Run.save, []

    def killed(self: Run, *arguments: Any) -> None:
        calls.append(self.folder)
        if len(calls) == 3 + member:  # at the second checkpoint
            raise Stop
        real(self, *arguments)

    monkeypatch.setattr(Run, "save", killed)
    with pytest.raises(Stop):
        run(configs, folders, OPTIONS)
    monkeypatch.undo()
    run(configs, folders, OPTIONS)
    for ours, theirs in zip(folders, whole, strict=True):
        for name in ("metrics.jsonl", "model.safetensors"):
            assert (ours / name).read_bytes() == (theirs / name).read_bytes()
        assert not list(ours.glob("checkpoint*"))


def test_members_at_different_steps_are_trained_one_after_the_other(tmp_path: Path) -> None:
    configs, whole = population(tmp_path / "whole")
    run(configs, whole, OPTIONS)
    _, folders = population(tmp_path / "apart")

    def cut(at: int, *rest: Any) -> None:
        if at >= 100:
            raise Stop

    with pytest.raises(Stop):
        run(configs[:1], folders[:1], OPTIONS, cut)
    run(configs, folders, OPTIONS)
    assert [(f / "metrics.jsonl").read_bytes() for f in folders] == [(f / "metrics.jsonl").read_bytes() for f in whole]


def test_evaluations_are_the_same_alone_and_in_a_population() -> None:
    """Products round differently for different numbers of rows, and members' episodes end at different steps."""
    fields = {**SMALL, "steps": 120, "eval_every": 60, "eval_episodes": 3, "hidden": (16,)}
    configs = [TD3Config(env="Pendulum-v1", eta=eta, seed=seed, **fields) for seed, eta in enumerate((0.0, 1.0, 2.0))]
    together = [Records() for _ in configs]
    Loop(make_agent(configs), configs[0], [0, 1, 2], together).run()
    for config_, records in zip(configs, together, strict=True):
        alone = Records()
        Loop(make_agent([config_]), config_, [config_.seed], [alone]).run()
        assert alone.lines == records.lines


def test_a_run_resumes_with_the_engine_that_it_began_with(tmp_path: Path) -> None:
    (one, _), (folder, _) = population(tmp_path)

    def cut(at: int, *rest: Any) -> None:
        if at >= 100:
            raise Stop

    with pytest.raises(Stop):
        run([one], [folder], RunOptions(kernels="off", checkpoint_every=60, tensorboard=False), cut)
    run([one], [folder], OPTIONS)
    result = read_result(folder)
    assert result is not None
    assert result["engine"] == "pytorch"


def test_a_lost_population_is_tried_again_together(tmp_path: Path) -> None:
    from bsrs.sweep.conduct import run_tasks
    from bsrs.sweep.plan import expand, run_options
    from bsrs.sweep.tasks import Ended, Task

    class LosesTheFirst(HereExecutor):
        def __init__(self) -> None:
            super().__init__()
            self.tried: list[int] = []

        def wait(self, timeout: float) -> list[Ended]:
            self.tried.append(len(self._queue[0].configs))
            if len(self.tried) == 1:
                return [Ended(self._queue.popleft(), "lost", "the worker was killed")]
            return super().wait(timeout)

    configs, executor = expand(SWEEP), LosesTheFirst()
    from sweeping import OPTIONS as SWEEPING

    task = Task(tmp_path, tuple(configs), run_options(configs[0], SWEEPING))
    assert len(run_tasks([task], executor, Notes()).statuses) == 2  # type: ignore[arg-type]
    assert executor.tried == [2, 2]


def test_a_checkpoint_left_by_a_kill_just_before_the_end_is_removed(tmp_path: Path) -> None:
    from bsrs.sweep.conduct import run_sweep
    from bsrs.sweep.plan import expand
    from sweeping import OPTIONS as SWEEPING

    finished(SWEEP, tmp_path)
    for path in (tmp_path / name for name in metrics(tmp_path)):
        checkpoint.save(path / "checkpoint", State(info={"step": 1}), {})
    run_sweep(expand(SWEEP), tmp_path, SWEEPING, HereExecutor())
    assert not list(tmp_path.glob("*/checkpoint"))


# --------------------------------------------------------------------------------------------------------------
# Envs


class Fine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(2, self.t / 20, np.float32), 1.0, self.t >= 10, False, {}


class Huge(Fine):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, 1e39, *rest


class Four(Fine):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class OldReset(Fine):
    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0]


class Late(Fine):
    """Breaks in the middle of training."""

    steps = 0
    error: BaseException = KeyError("boom")

    def step(self, action: Any) -> Any:
        Late.steps += 1
        if Late.steps > 100:
            raise self.error
        return super().step(action)


class Noisy(Fine):
    draws = 0

    def reset(self, **options: Any) -> Any:
        Noisy.draws += 1
        return super().reset(**options)[0] + np.float32(Noisy.draws / 1e4), {}


@pytest.mark.parametrize(
    ("env", "says"), [(Huge, "reward 1e.39"), (Four, "does not return five values"), (OldReset, "observation alone")]
)
def test_a_broken_env_is_refused_before_a_folder_is_made(tmp_path: Path, env: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        run([DQNConfig(env=env_name(env), **SMALL)], [tmp_path / "run"], OPTIONS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("error", [KeyError("boom"), SystemExit(0)])
def test_an_env_that_breaks_in_training_is_one_sentence_and_a_traceback_in_the_folder(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Late, "steps", 0)
    monkeypatch.setattr(Late, "error", error)
    with pytest.raises(EnvFault, match=f"failed in step: {type(error).__name__}"):
        run([DQNConfig(env=env_name(Late), **SMALL)], [tmp_path / "run"], OPTIONS)
    assert "raise self.error" in (tmp_path / "run" / TRACEBACK).read_text()
    assert (tmp_path / "run" / "checkpoint").exists()  # of step 60


def test_an_env_that_is_not_deterministic_trains_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = DQNConfig(env=env_name(Noisy), **SMALL)
    assert not check_env(one.env)
    assert "is not deterministic" in capsys.readouterr().err

    def cut(at: int, *rest: Any) -> None:
        if at >= 100:
            raise Stop

    with pytest.raises(Stop):
        run([one], [tmp_path / "run"], OPTIONS, cut)
    (outcome,) = run([one], [tmp_path / "run"], OPTIONS)
    assert (outcome.outcome, outcome.step) == ("finished", 200)
    assert "The interrupted episode begins again" in capsys.readouterr().err


def test_what_is_no_env_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert "SystemExit" in refused(["train", "dqn", "--env", "sys:exit", "--out", out], capsys)
    assert "expected a gymnasium.Env" in refused(["train", "dqn", "--env", "builtins:dict", "--out", out], capsys)


# --------------------------------------------------------------------------------------------------------------
# Files that are written at somebody's request


def test_an_exported_policy_and_a_report_replace_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    agent = make_agent([DQNConfig(env="CartPole-v1", hidden=(4,), buffer_size=10)])
    for name in ("policy.pt", "page.html"):
        (tmp_path / name).symlink_to(precious)
    export_policy(agent, agent.spec, tmp_path / "policy.pt", "torchscript")  # type: ignore[attr-defined]
    write_run(tmp_path / "runs", config("CartPole-v1", 0.0, 0), [1.0])
    write_report(read_study([tmp_path / "runs"]), tmp_path / "page.html")
    assert precious.read_text() == "years of work"
    assert not (tmp_path / "policy.pt").is_symlink()
    assert "Content-Security-Policy" in (tmp_path / "page.html").read_text()[:2_000]


# --------------------------------------------------------------------------------------------------------------
# The command line


def test_what_used_to_be_tracebacks(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    (tmp_path / "broken_plugin.py").write_text("1 / 0")
    (tmp_path / "leaving_plugin.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", config("CartPole-v1", 0.0, 0), [1.0])
    assert "ZeroDivisionError" in refused(["runs", ".", "--plugin", "broken_plugin"], capsys)
    assert "SystemExit" in refused(["runs", ".", "--plugin", "leaving_plugin"], capsys)
    assert "cannot be answered" in refused(["runs", "runs", "--sql", "select \udcff"], capsys)
    assert "cannot be answered" in refused(["runs", "runs", "--sql", "select 1; selct"], capsys)
    (tmp_path / "runs" / "claims.json").write_text(json.dumps({"claims": [{**CLAIM, "p": 10**400}]}))
    assert list(read_study([tmp_path / "runs"]).unreadable) == [tmp_path / "runs" / "claims.json"]
    refused(["sweep", "dqn", "--env", "CartPole-v1", "--seeds", "9" * 5_000], capsys)


CLAIM = {"claim": "it works", "shown": "it does", "interval": "[0, 1]", "verdict": "holds", "settle": ""}


def test_brackets_in_a_name_are_not_markup(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from bsrs.cli.show import print_table, show_progress

    print_table("a [/red] title", [{"name": "[/red]"}])
    assert "[/red]" in capsys.readouterr().out
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with show_progress(10, "dqn [/red]") as progress:
        progress(5, 1.0, None, {})


@pytest.mark.parametrize("error", ["[enforce fail at alloc_cpu.cpp] can't allocate memory", "CUDA out of memory."])
def test_memory_that_pytorch_does_not_get_is_one_sentence(
    error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr(torch, "ones", fail)
    monkeypatch.setattr("bsrs.cli._dispatch", lambda words: fail())
    assert "not enough memory" in refused(["train"], capsys)


def test_closed_streams_do_not_become_a_run(tmp_path: Path) -> None:
    """The next file that is opened would get the number of the stream, and what is printed would go there."""
    command = f"{sys.executable} -m bsrs train dqn --env nowhere:Env-v0 --out {tmp_path}/run"
    for closed in ("2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        assert subprocess.run(["bash", "-c", f"{command} {closed}"], cwd=tmp_path).returncode == 2
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------------------
# Tables


def cycle(reward: float) -> MDP:
    states = np.arange(30)
    transitions = np.zeros((30, 2, 30))
    transitions[states, 0, (states + 1) % 30] = 1
    transitions[states, 1, states] = 1
    return MDP(transitions, reward * np.random.default_rng(1).random((30, 2)))


@pytest.mark.parametrize("method", ["auto", "midrange"])
def test_solvers_end_where_rounding_ends_them(method: Any) -> None:
    """They went on for ever at a width of 2.8e-9, shifting values of 1e7 by the rounding of the last shift."""
    solution = solve(cycle(1e3), 0.9999, method=method, tol=1e-10, max_steps=200_000)
    assert solution.outcome == "converged"


def test_small_rewards_are_not_solved_at_once() -> None:
    value = solve(cycle(1.0), 0.9, method="auto").optimal_value
    small = solve(cycle(1e-7), 0.9, method="auto").optimal_value
    np.testing.assert_allclose(small * 1e7, value, rtol=1e-4)
    with pytest.raises(BadInput, match="largest reward"):
        solve(cycle(1e-7), 0.9, tol=1e-6)
