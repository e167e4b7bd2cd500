"""Run folders as a sweep leaves them, with made-up learning curves: what statistics, figures and reports read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bsrs.config.algorithms import find_algorithm, preset
from bsrs.config.base import to_dict
from bsrs.config.settings import RunSettings, folder_name
from bsrs.config.training import TrainingConfig
from bsrs.rng import stream
from bsrs.store.read import FORMAT


def write_run(
    root: Path,
    config: RunSettings | TrainingConfig,
    scores: Sequence[float],
    outcome: str | None = "finished",
    reason: str = "",
) -> Path:
    """Write the folder of a run that was evaluated len(scores) times, evenly spaced."""
    if not isinstance(config, RunSettings):
        config = RunSettings.of(config)
    folder = root / folder_name(config)
    folder.mkdir(parents=True)
    about = {"format": FORMAT, "algorithm": config.algorithm, "identity": config.identity}
    (folder / "config.json").write_text(json.dumps({**about, "config": dict(config.fields)}))
    lines: list[dict[str, Any]] = []
    for i, score in enumerate(scores, 1):
        step = i * config.eval_every
        learnt = {"loss": 1 / i, "value": float(i), "advantage": 0.1 * i, "shaping": -0.01 * i}
        lines += [{"kind": "train", "step": step, "episodes": 3, "return": score, "length": 10.0, **learnt}]
        lines += [{"kind": "eval", "step": step, "score": score, "scores": [score]}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if outcome is not None:
        step = len(scores) * config.eval_every
        result = {"outcome": outcome, "step": step, "score": scores[-1] if scores else None, "reason": reason}
        (folder / "result.json").write_text(json.dumps({**result, "wall_time_s": 12.5, "versions": {}, "host": "h"}))
    return folder


def config(env: str, eta: float | str, seed: int, algorithm: str = "dqn", **fields: Any) -> RunSettings:
    """Ten evaluations, one each 1,000 steps. `fields` may be of another version of bsrs."""
    name = {"dqn": "classic", "td3": "pendulum", "sac": "pendulum"}[algorithm]
    settings = {"env": env, "eta": eta, "seed": seed, "steps": 10_000, "eval_every": 1_000, **fields}
    known = {f.name for f in dataclasses.fields(find_algorithm(algorithm).config_class)}
    ours = preset(algorithm, name, **{field: value for field, value in settings.items() if field in known})
    return RunSettings.read(algorithm, {**to_dict(ours), **settings})


def write_sweep(
    root: Path, envs: Sequence[str], etas: Sequence[float | str], seeds: int, *, algorithm: str = "dqn", **fields: Any
) -> None:
    """Curves that rise to 100, sooner for an eta near 2 and never far for a negative one."""
    for env in envs:
        for eta in etas:
            for seed in range(seeds):
                write_run(root, config(env, eta, seed, algorithm, **fields), made_up_curve(env, eta, seed).tolist())


def made_up_curve(env: str, eta: float | str, seed: int) -> np.ndarray:
    rng = stream(seed, "made-up", env, eta if isinstance(eta, str) else f"{eta:g}")
    eta = 1.0 if isinstance(eta, str) else eta  # a schedule
    speed = 0.1 if eta < 0 else 0.3 + 0.2 * eta * np.exp(-eta / 2)
    return 100 * (1 - np.exp(-speed * np.arange(1, 11))) + rng.normal(scale=4, size=10)
