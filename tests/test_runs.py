"""Listing a store, reading it as one table, and the places where records go besides."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bsrs.cli import main
from bsrs.config.settings import folder_name
from bsrs.config.sweep import RunFilter
from bsrs.store.lock import Lock
from bsrs.store.table import connect, list_runs, read_records, read_runs
from bsrs.store.trackers import open_trackers
from bsrs.sweep.conduct import sweep_folder
from bsrs.sweep.plan import expand
from bsrs.sweep.view import pulse
from sweeping import begin, finished, small_sweep

SWEEP = small_sweep()
FIRST, SECOND = expand(SWEEP)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, one that was stopped in the middle, and one that was planned but never begun."""
    root = tmp_path_factory.mktemp("store")
    finished(SWEEP, root)
    third, fourth = expand(small_sweep(eta=(2.0, 3.0)))
    begin(third, root)
    with sweep_folder(root, [folder_name(config) for config in (FIRST, SECOND, third, fourth)]):
        pass
    return root


def test_a_run_at_a_glance(store: Path) -> None:
    first, second, third = list_runs(store)
    assert (first.env, first.algorithm, first.eta, first.seed) == ("CartPole-v1", "dqn", 0.0, 0)
    assert (first.step, first.steps, first.state) == (300, 300, "finished")
    assert first.score is not None
    assert 0 <= first.age_s < 600
    assert (third.step, third.state, third.score) == (150, "interrupted", None)
    assert second.name == folder_name(SECOND)


def test_a_run_is_running_while_a_process_has_it(store: Path) -> None:
    folder = store / list_runs(store, RunFilter(eta=("2",)))[0].name
    lock = Lock(folder / "lock", "the run")
    assert list_runs(store, RunFilter(eta=("2",)))[0].state == "running"
    lock.release()
    assert list_runs(store, RunFilter(eta=("2",)))[0].state == "interrupted"


@pytest.mark.parametrize(
    ("which", "count"),
    [
        (RunFilter(), 3),
        (RunFilter(env=("Cart*",)), 3),
        (RunFilter(env=("Pendulum-v1",)), 0),
        (RunFilter(algorithm=("td3",)), 0),
        (RunFilter(eta=("1", "2.0")), 2),
        (RunFilter(seed=(1,)), 0),
        (RunFilter(state=("finished",)), 2),
        (RunFilter(state=("interrupted", "failed"), seed=(0,)), 1),
    ],
)
def test_filters(store: Path, which: RunFilter, count: int) -> None:
    assert len(list_runs(store, which)) == count


def test_the_listing_of_the_command(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["runs", str(store)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == "env algorithm eta seed step score state age name".split()
    assert lines[3].split()[:6] == "CartPole-v1 dqn 2 0 150 interrupted".split()
    assert lines[4] == "3 runs: 2 finished, 1 interrupted, 1 not begun"
    main(["runs", str(store), "--eta", "1", "--json"])
    assert [run["eta"] for run in json.loads(capsys.readouterr().out)["runs"]] == [1.0]
    main(["runs", str(store), "--sql", "select count(*) as number from runs where state = 'finished'"])
    assert "2" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["runs", str(store), "--sql", "select nonsense"])
    assert "the question cannot be answered" in capsys.readouterr().err


def test_damage_is_shown_not_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = begin(FIRST, tmp_path)
    (folder / "config.json").write_text("{")
    assert [status.state for status in list_runs(tmp_path)] == ["damaged"]
    main(["runs", str(tmp_path)])
    assert "config.json is damaged" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="damaged and left out"):
        assert read_records(tmp_path).empty


def test_the_pulse_of_a_run_whose_last_line_is_half_written(store: Path, tmp_path: Path) -> None:
    lines = (store / folder_name(FIRST) / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:10])
    (tmp_path / "timing.jsonl").write_bytes(b'{"step": 100, "steps_per_s": 7.5}\n')
    assert pulse(tmp_path).step == 100
    assert pulse(tmp_path).steps_per_s == 7.5
    assert pulse(tmp_path / "nowhere").step == 0


def test_one_table_for_pandas(store: Path) -> None:
    records = read_records(store)
    assert list(records.columns[:5]) == ["name", "algorithm", "env", "eta", "seed"]
    assert records.groupby("eta").size().to_dict() == {0.0: 7, 1.0: 7, 2.0: 3}
    assert set(records[records.kind == "eval"].step) == {300}
    assert list(read_runs(store).state) == ["finished", "finished", "interrupted"]
    assert len(read_records(store, RunFilter(eta=("0",)))) == 7


def test_comma_separated_values_have_the_settings_as_columns(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["runs", str(store), "--csv"])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["eta"] for row in rows] == [str(eta) for eta in read_runs(store).eta]
    assert {row["state"] for row in rows} == {"finished", "interrupted"}
    assert {row["hidden"] for row in rows} == {" ".join(map(str, FIRST.hidden))}
    assert set(rows[0]) == set(read_runs(store).columns)


def test_one_table_for_duckdb(store: Path) -> None:
    connection = connect(store)
    counted = connection.sql("select eta, count(*) from records join runs using (name, eta) group by eta order by eta")
    assert counted.fetchall() == [(0.0, 7), (1.0, 7), (2.0, 3)]


def test_duckdb_reads_the_files_themselves(store: Path) -> None:
    import duckdb

    found = duckdb.sql(f"select count(*), max(step) from read_json('{store}/*/metrics.jsonl', union_by_name=true)")
    assert found.fetchall() == [(17, 300)]


# --------------------------------------------------------------------------------------------------------------
# Trackers


def test_tensorboard_has_the_records(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = open_trackers(["tensorboard"], tmp_path, FIRST, 0)[0]
    for step in (50, 100):
        tracker.log({"train/loss": step / 100}, step)
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(50, 0.5), (100, 1.0)]


def test_weights_and_biases_offline(tmp_path: Path) -> None:
    """In a process of its own, because wandb starts a service beside it."""
    pytest.importorskip("wandb")
    words = "train dqn --env CartPole-v1 --steps 200 --learning-starts 50 --log-every 50 --no-tensorboard --track wandb"
    command = [sys.executable, "-m", "bsrs", *words.split(), "--out", str(tmp_path / "run")]
    subprocess.run(command, check=True, env={**os.environ, "WANDB_MODE": "offline"}, capture_output=True)
    (log,) = tmp_path.glob("run/wandb/offline-run-*/*.wandb")
    assert b"train/loss" in log.read_bytes()
