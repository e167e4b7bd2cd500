"""Run folders as a sweep leaves them, with made-up learning curves: what statistics, figures and reports read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bsrs.config.algorithms import preset
from bsrs.config.base import identity, to_dict
from bsrs.config.training import TrainingConfig
from bsrs.rng import stream
from bsrs.store.read import folder_name


def write_run(
    root: Path, config: TrainingConfig, scores: Sequence[float], outcome: str | None = "finished", reason: str = ""
) -> Path:
    """The folder of a run that was evaluated len(scores) times, evenly spaced."""
    folder = root / folder_name(config)
    folder.mkdir(parents=True)
    about = {"format": 1, "algorithm": config.algorithm, "identity": identity(config), "config": to_dict(config)}
    (folder / "config.json").write_text(json.dumps(about))
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


def config(env: str, eta: float | str, seed: int, algorithm: str = "dqn", **fields: Any) -> TrainingConfig:
    """Ten evaluations, one each 1,000 steps."""
    name = {"dqn": "classic", "td3": "pendulum", "sac": "pendulum"}[algorithm]
    settings = {"steps": 10_000, "eval_every": 1_000, **fields}
    return preset(algorithm, name, env=env, eta=eta, seed=seed, **settings)


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
