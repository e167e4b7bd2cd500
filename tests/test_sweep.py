"""Planning sweeps: which runs there are, the presets, and what the command line says about them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from bsrs.cli import main
from bsrs.config.algorithms import preset
from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepConfig, SweepOptions
from bsrs.errors import BadInput
from bsrs.sweep import measure
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.plan import SCALES, describe, expand, members, read_sweep, sweep_presets, tasks_left
from bsrs.sweep.tasks import work
from sweeping import OPTIONS, HereExecutor, begin, finished, metrics, small_sweep


def test_expand_takes_every_combination_and_the_seed_changes_slowest() -> None:
    sweep = small_sweep(eta=(0, 0.5), seeds=2, first_seed=3, grid={"target_update_interval": [10, 20]})
    runs = [(c.seed, c.target_update_interval, c.eta) for c in expand(sweep)]  # type: ignore[attr-defined]
    etas = (0.0, 0.5)
    assert runs == [(seed, interval, eta) for seed in (3, 4) for interval in (10, 20) for eta in etas]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eta": (1.0, 1.0)}, "eta twice"),
        ({"env": ()}, "no env"),
        ({"seeds": 0}, "seeds is 0"),
        ({"algorithm": "dqm"}, "did you mean dqn"),
        ({"env": ("CartPole-v9",)}, "unknown env 'CartPole-v9'"),
        ({"env": ("Pendulum-v1",), "algorithm": "td3", "fields": {"double": True}}, "unknown field"),
        ({"fields": {"gamma": 2.0}}, "gamma is 2.0"),
        ({"fields": {"eta": 2.0}}, "eta is among the sweep's settings"),
        ({"grid": {"gamma": 0.9}}, "expected a list"),
        ({"only": {"CartPole-v1": 3}}, "only: CartPole-v1 is 3; expected a table of settings"),
        ({"only": {"CartPole-v1": {"preset": [1]}}}, "expected a table of settings and a preset"),
        ({"only": {"CartPole-v1": {"gama": 0.9}}}, "unknown field 'gama': did you mean gamma"),
        ({"only": {"CartPole-v1": {"preset": "clasic"}}}, "did you mean classic"),
        ({"only": {"CartPole-v1": {"seed": 1}}}, "seed is among the sweep's settings"),
        ({"only": {"CartPole-v1": {"gamma": 0.9}}, "grid": {"gamma": [0.8]}}, "is in the grid too; expected it once"),
        ({"preset": "clasic"}, "did you mean classic"),
    ],
)
def test_bad_sweeps(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        expand(small_sweep(**changes))


PAPER = {"tabular": 460, "atari": 1400, "pendulum": 160, "mujoco": 60, "target-ablation": 160}


def test_the_authors_code_is_a_preset_beside_the_text() -> None:
    text, code = (read_sweep(f"paper-atari{end}", "paper", {"double": True}) for end in ("", "-as-run"))
    assert code == dataclasses.replace(text, fields={**text.fields, "terminal": "keep"})
    assert read_sweep("paper-pendulum-as-run", "paper", {}).fields["potential"] == "replay"
    assert all(expand(read_sweep(f"paper-{name}-as-run", "smoke", {})) for name in PAPER if name != "tabular")
    assert 0.0 in read_sweep("paper-target-ablation", "paper", {}).eta


@pytest.mark.parametrize("name", PAPER)
def test_every_preset_has_three_scales_whose_runs_can_be_made(name: str) -> None:
    assert f"paper-{name}" in sweep_presets()
    sizes = {}
    for scale in SCALES:
        configs = expand(read_sweep(f"paper-{name}", scale, {}))
        sizes[scale] = len(configs)
        assert len({folder_name(config) for config in configs}) == len(configs)
    assert sizes["paper"] == PAPER[name]
    assert sizes["smoke"] <= sizes["laptop"] or name == "atari"


def test_a_file_of_ones_own_with_a_setting_changed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('algorithm = "dqn"\nenv = ["CartPole-v1"]\neta = [0, 1]\nfields = { steps = 100 }\n')
    assert [config.steps for config in expand(read_sweep(str(file), "", {"steps": 200}))] == [200, 200]
    with pytest.raises(BadInput, match="has no scales"):
        read_sweep(str(file), "smoke", {})
    file.write_text("algorithm = [")
    with pytest.raises(BadInput, match="is not TOML"):
        read_sweep(str(file), "", {})
    file.write_text('algorithm = "dqn"\nenvs = ["CartPole-v1"]\n')
    with pytest.raises(BadInput, match="unknown field 'envs': did you mean env"):
        read_sweep(str(file), "", {})


def test_an_env_with_settings_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    lists = 'algorithm = "dqn"\npreset = "classic"\nenv = ["CartPole-v1", "Acrobot-v1"]\nfields = { steps = 100 }\n'
    file.write_text(f'{lists}[only."Acrobot-v1"]\npreset = "zoo-lunarlander"\nsteps = 300\n')
    cartpole, acrobot = expand(read_sweep(str(file), "", {}))
    assert (cartpole.steps, acrobot.steps) == (100, 300)
    assert cartpole == preset("dqn", "classic", env="CartPole-v1", steps=100)
    assert acrobot == preset("dqn", "zoo-lunarlander", env="Acrobot-v1", steps=300)
    assert [config.steps for config in expand(read_sweep(str(file), "", {"steps": 200}))] == [200, 200]
    file.write_text(f'{lists}[only."Acrobat-v1"]\nsteps = 300\n')
    with pytest.raises(BadInput, match="under only 'Acrobat-v1': did you mean Acrobot-v1"):
        read_sweep(str(file), "", {})


def test_the_ablation_has_breakout_as_the_study_of_minatar_has_it() -> None:
    ablation, minatar = (
        {config for config in expand(read_sweep(name, "laptop", {})) if config.env == "MinAtar/Breakout-v0"}
        for name in ("paper-target-ablation", "minatar")
    )
    assert {config for config in minatar if config.eta != "auto"} < ablation


def test_scales_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="choose one with --scale"):
        read_sweep("paper-pendulum", "", {})
    with pytest.raises(BadInput, match="unknown scale of paper-pendulum 'smok': did you mean smoke"):
        read_sweep("paper-pendulum", "smok", {})
    with pytest.raises(BadInput, match="did you mean paper-pendulum"):
        read_sweep("paper-pendulums", "smoke", {})


def test_the_estimate_counts_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = expand(small_sweep(eta=(0.0, 0.5, 1.0)))
    tables = expand(read_sweep("paper-tabular", "smoke", {}))
    measured = []
    monkeypatch.setattr(measure, "step_seconds", lambda task, seconds: measured.append(task) or 0.01)
    assert measure.core_seconds(tasks_left([*sweep, *tables], tmp_path, OPTIONS)) == pytest.approx(3 * 300 * 0.01)
    assert len(measured) == 1  # runs that look alike are measured once
    begin(sweep[0], tmp_path, step=150)  # its checkpoint is of step 120
    assert measure.core_seconds(tasks_left(sweep, tmp_path, OPTIONS)) == pytest.approx((180 + 600) * 0.01)


@pytest.mark.parametrize("learning_starts", [0, 10_000])
def test_the_measurement_times_random_play_and_learning(
    learning_starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bsrs.kernels.dqn import DQNKernel

    learned = []
    real = DQNKernel.train
    monkeypatch.setattr(DQNKernel, "train", lambda *args: learned.append(1) or real(*args))
    fields = {"learning_starts": learning_starts, "steps": 20_000, "train_freq": 1, "gradient_steps": 1}
    task = tasks_left(expand(small_sweep(fields=fields)), tmp_path, OPTIONS)[0]
    assert measure.step_seconds(task, 0.0) > 0
    assert len(learned) == pytest.approx(measure.WARM_UP, abs=1)  # of twice as many steps
    assert not list(tmp_path.iterdir())


def test_memory_of_the_replay() -> None:
    td3 = expand(small_sweep(env=("Pendulum-v1",), algorithm="td3", fields={"steps": 1_000, "buffer_size": 500}))[0]
    assert measure.replay_bytes(td3) == 500 * (2 * 3 * 4 + 4 + 8)


@pytest.mark.parametrize(
    ("algorithm", "env", "runs", "workers", "expected"),
    [
        ("dqn", "CartPole-v1", 20, 2, 10),  # a population for each worker
        ("dqn", "CartPole-v1", 40, 2, 10),  # two for each, not three for one of them
        ("dqn", "CartPole-v1", 5, 8, 1),  # a core for each run
        ("dqn", "PongNoFrameskip-v4", 20, 2, 1),  # one run keeps a core busy
        ("td3", "Pendulum-v1", 20, 2, 4),
        ("tabular", "paper", 20, 2, 1),
    ],
)
def test_populations_are_as_large_as_pays(algorithm: str, env: str, runs: int, workers: int, expected: int) -> None:
    config = expand(SweepConfig(algorithm=algorithm, env=(env,)))[0]
    assert members(config, runs, SweepOptions(workers=workers)) == expected
    assert members(config, runs, SweepOptions(workers=workers, members=7)) == 7
    assert members(config, runs, SweepOptions(executor="ray")) == 1


def test_populations_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    config = expand(SweepConfig(algorithm="dqn", env=("CartPole-v1",)))[0]
    two_workers_of_three = 2 * (measure.PROCESS_BYTES + 3.5 * measure.replay_bytes(config)) / 0.8
    monkeypatch.setattr("bsrs.sweep.plan.machine_bytes", lambda: two_workers_of_three)
    assert members(config, 60, SweepOptions(workers=2)) == 3
    monkeypatch.setattr("bsrs.sweep.plan.machine_bytes", lambda: 0.0)
    assert members(config, 60, SweepOptions(workers=2)) == 1


def test_what_an_interrupted_sweep_has_left_uses_all_workers(tmp_path: Path) -> None:
    configs = expand(small_sweep(eta=(0.0, 0.5, 1.0), seeds=2))
    options = SweepOptions(workers=2, tensorboard=False)
    first, second = tasks_left(configs, tmp_path, options)
    assert describe([first, second], options) == (
        "6 runs to train in 2 populations of up to 3 members, 2 local workers"
    )
    assert work(first).how == "done"
    left = tasks_left(configs, tmp_path, options)
    assert [config for task in left for config in task.configs] == list(second.configs)
    assert [len(task.configs) for task in left] == [2, 1]


def test_dry_run_prints_the_runs_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    main(f"sweep dqn --env CartPole-v1 --eta 0 0.5 --seeds 2 --steps 1000 --out {out} --dry-run".split())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("-eta")[0] for line in lines[:4]] == ["dqn-CartPole-v1"] * 4
    assert lines[4].startswith("4 runs, 0 of them done; the rest takes about")
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sweep --preset paper-atari --scale smok", "unknown scale"),
        ("sweep nothing.toml", "there is no file nothing.toml"),
        ("sweep", "expected a TOML file or one --preset"),
        ("sweep dqn --env Nope-v1 --eta 0 --out x", "unknown env"),
        ("sweep dqn --env CartPole-v1 --eta zero --out x", "eta"),
        ("sweep --preset paper-pendulum --scale smoke --set gama=1", "unknown field 'gama'"),
        ("runs nowhere", "nowhere is not a folder"),
    ],
)
def test_bad_input_is_one_sentence(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_bad_options() -> None:
    with pytest.raises(BadInput, match="workers is -1; expected at least 0"):
        SweepOptions(workers=-1)


def test_members_train_together_and_leave_the_records_of_ordinary_runs(tmp_path: Path) -> None:
    sweep = small_sweep(seeds=2)
    alone = finished(sweep, tmp_path / "alone")
    together = tmp_path / "together"
    options = SweepOptions(members=3, checkpoint_every=60, tensorboard=False)
    assert [len(task.configs) for task in tasks_left(expand(sweep), together, options)] == [3, 1]
    begin(expand(sweep)[0], together)  # has come further than the others, so it goes on alone
    assert [len(task.configs) for task in tasks_left(expand(sweep), together, options)] == [1, 3]
    summary = run_sweep(expand(sweep), together, options, HereExecutor())
    assert not summary.problems
    assert {status.state for status in summary.statuses} == {"finished"}
    for name, lines in metrics(together).items():  # the same but for rounding
        assert lines.count(b"\n") == alone[name].count(b"\n")
        assert lines.splitlines()[0] == alone[name].splitlines()[0]


def test_a_sweep_of_tables(tmp_path: Path) -> None:
    summary = run_sweep(expand(read_sweep("paper-tabular", "smoke", {})), tmp_path, OPTIONS, HereExecutor())
    steps = {(status.eta, status.seed): status.step for status in summary.statuses}
    assert {status.state for status in summary.statuses} == {"finished"}
    assert steps[0.23, 0] < steps[0.11, 0] < steps[0.0, 0]


def test_a_table_that_diverges_is_an_outcome(tmp_path: Path) -> None:
    sweep = read_sweep("paper-tabular", "smoke", {})
    configs = [config for config in expand(sweep) if config.seed == 0 and config.eta == 0.0]
    wild = dataclasses.replace(configs[0], eta=20.0)
    summary = run_sweep([wild], tmp_path, OPTIONS, HereExecutor())
    assert [status.state for status in summary.statuses] == ["diverged"]
    assert "residual" in summary.statuses[0].reason
