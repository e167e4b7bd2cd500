"""A run from its config to its result: the agent, the loop and the folder put together.

`run` is what the command line and the sweeps call; `bsrs.learners` is the same for people who write Python.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bsrs.agents.agent import Agent, State
from bsrs.config.algorithms import find_algorithm
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.envs.checking import check_env
from bsrs.envs.defaults import spec_of
from bsrs.errors import BadInput, EnvFault, say
from bsrs.shaping import Shaping
from bsrs.store.files import Damaged
from bsrs.store.read import ENDED, checkpoints, read_result
from bsrs.store.run import TRACEBACK, Run
from bsrs.train import Loop, Outcome, Progress
from bsrs.writing import Denied, Exhausted


def make_agent(
    configs: Sequence[TrainingConfig], device: str = "cpu", shaping: Shaping | None = None, *, use_kernels: bool = True
) -> Agent:
    """Make one agent with a member for each config; they may differ in the algorithm's `member_fields` only."""
    try:
        torch.ones(1, device=device).item()  # some devices, such as meta, hold no numbers
    except Exception as error:
        raise BadInput(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from None
    row = find_algorithm(configs[0].algorithm)
    options = {"device": device, "shaping": shaping} | ({} if use_kernels else {"use_kernels": False})
    agent: Agent = row.make_agent(configs, spec_of(configs[0].env), **options)
    return agent


def run(
    configs: Sequence[TrainingConfig],
    folders: Sequence[Path],
    options: RunOptions,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Train the configs together as one population, each with its records in its own folder."""
    if options.threads:
        torch.set_num_threads(options.threads)
    # First, so that a bad config or env is refused before a folder is made.
    check_env(configs[0].env)
    agent: Agent | None = make_agent(configs, options.device, use_kernels=options.kernels == "auto")
    outcomes = _ended_before(folders) if options.resume and len(folders) > 1 else {}
    with ExitStack() as opened:
        runs = {}
        for config, folder in zip(configs, folders, strict=True):
            if folder not in outcomes:
                one = Run(folder, config, resume=options.resume, track=options.trackers, members=len(configs))
                opened.callback(one.close)
                runs[folder] = one
        while left := [one for folder, one in runs.items() if folder not in outcomes]:
            step, engine, group = _next_group(left)
            use_kernels = options.kernels == "auto" if not engine else engine == "kernel"
            if agent is None or len(group) < len(configs) or engine not in ("", engine_of(agent)):
                agent = make_agent([one.config for one in group], options.device, use_kernels=use_kernels)
            outcomes |= _train(agent, group, step, engine, options, progress)
            agent = None
        return [outcomes[folder] for folder in folders]


def _ended_before(folders: Sequence[Path]) -> dict[Path, Outcome]:
    """Read which members of an interrupted population had ended; nothing if all had."""
    results = {folder: read_result(folder) for folder in folders}
    ended = {folder: result for folder, result in results.items() if result and result["outcome"] in ENDED}
    names = ("outcome", "step", "score", "reason")
    found = {folder: Outcome(*(result[name] for name in names)) for folder, result in ended.items()}
    return found if len(found) < len(folders) else {}


def _next_group(runs: Sequence[Run]) -> tuple[int, str, list[Run]]:
    """Choose the runs to train together next, with the step and the engine at which they continue.

    All of them, from the latest step of which each has a checkpoint; otherwise those that are as far as the first.
    """
    saved = [checkpoints(one.folder) for one in runs]
    common = set.intersection(*(set(found) for found in saved))
    step = max(common) if common else max(saved[0], default=0)
    engine = saved[0][step].engine if step in saved[0] else ""
    same = [step in found or (not found and not step) for found in saved]
    engines = [found[step].engine if step in found else "" for found in saved]
    return step, engine, [one for one, fits, its in zip(runs, same, engines, strict=True) if fits and its == engine]


def _train(
    agent: Agent, runs: Sequence[Run], step: int, engine: str, options: RunOptions, progress: Progress | None
) -> dict[Path, Outcome]:
    """Train from `step` to the end. Empty if a checkpoint was damaged: it has been set aside, so try again."""
    if engine not in ("", engine_of(agent)):
        raise BadInput(f"the run {runs[0].folder} was trained by {engine}, which is not available here")
    try:
        loop = Loop(agent, runs[0].config, [one.config.seed for one in runs], runs)
        try:
            for p, one in enumerate(runs):
                one.engine = engine_of(agent)
                state = one.load(step)
                if state is not None:
                    _continue(loop, p, one, state)
        except Damaged:
            return {}
        for one in runs if step and progress else ():
            say(f"{one.folder} holds this run, unfinished: it resumes at step {step:,}")
        outcomes = loop.run(checkpoint_every=options.checkpoint_every, progress=progress)
        return {one.folder: outcome for one, outcome in zip(runs, outcomes, strict=True)}
    except Exception as error:
        raise _failed(runs, error) from error


def _continue(loop: Loop, p: int, one: Run, state: State) -> None:
    """Put a member where its checkpoint was; a checkpoint that does not fit is set aside."""
    try:
        loop.load_state(p, state)
    except (EnvFault, Denied, Exhausted, MemoryError, OSError):
        raise
    except Exception as error:
        damaged = Damaged(f"the checkpoint cannot be used ({type(error).__name__}: {error})")
        one.set_aside(None, damaged)
        raise damaged from None


def _failed(runs: Sequence[Run], error: Exception) -> Exception:
    """Record why the runs failed, and make the error for the user."""
    for one in runs:
        one.fail(error)
    if isinstance(error, (BadInput, MemoryError)):
        return error
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return BadInput(f"training failed with {what}; the traceback is in {runs[0].folder / TRACEBACK}")


def engine_of(agent: Agent) -> str:
    """Name what computes the gradient steps: a compiled kernel, or PyTorch."""
    return "pytorch" if getattr(agent, "kernel", None) is None else "kernel"


@dataclass
class Records:
    """Records kept in memory, for a run without a folder."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def append(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def timing(self, line: dict[str, Any]) -> None:
        """Not kept."""

    def save(self, state: State) -> None:
        """Not kept."""

    def finish(self, outcome: Outcome, policy: State) -> None:
        """Not kept."""
