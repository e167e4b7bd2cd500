"""Exact solutions as runs, so that the tabular figure is a sweep like the others."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bsrs.config.sweep import RunOptions
from bsrs.config.tabular import TableRunConfig
from bsrs.tabular.grids import named_mdp
from bsrs.tabular.solve import solve
from bsrs.tabular.theory import random_inits


def solve_runs(configs: Sequence[TableRunConfig], folders: Sequence[Path], options: RunOptions) -> None:
    """Solve the tables one after the other."""
    for config, folder in zip(configs, folders, strict=True):
        _solve(config, folder, options)


def _solve(config: TableRunConfig, folder: Path, options: RunOptions) -> None:
    """Solve the table and leave the records in `folder`. It is done in an instant, so there are no checkpoints."""
    import torch

    from bsrs.agents.agent import State
    from bsrs.store.run import Run
    from bsrs.train import Outcome

    mdp = named_mdp(config.env, slip=config.slip, goal=config.goal)
    init = random_inits(mdp, range(config.seed, config.seed + 1))[0]
    solution = solve(mdp, config.gamma, eta=config.eta, init=init, tol=config.tol, max_steps=config.steps)
    score, last = float(mdp.start_distribution() @ solution.optimal_value), solution.applications
    outcome = Outcome("finished", last, score)
    if solution.outcome != "converged":
        reason = f"{solution.outcome} after {last} applications, residual {solution.residuals[-1]:.3g}"
        outcome = Outcome("diverged", last, score if np.isfinite(score) else None, reason)
    run = Run(folder, config, resume=True, track=options.trackers)
    try:
        run.load()
        for step, residual in enumerate(solution.residuals.tolist(), start=1):
            if step % config.log_every == 0 or step == last:
                run.append({"kind": "train", "step": step, "residual": residual})
        run.append({"kind": "eval", "step": last, "score": score, "scores": [score]})
        run.finish(outcome, State({"q": torch.from_numpy(np.array(solution.q))}))
    finally:
        run.close()
