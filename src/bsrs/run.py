"""A run from its config to its result: the agent, the loop and the folder put together.

`run` is what the command line and the sweeps call; `bsrs.learners` is the same for people who write Python.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bsrs.agents.agent import Agent, State
from bsrs.config.algorithms import find_algorithm
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.envs.defaults import spec_of
from bsrs.errors import BadInput, EnvFault
from bsrs.shaping import Shaping
from bsrs.store.files import Damaged
from bsrs.store.run import Run
from bsrs.train import Loop, Outcome, Progress


def make_agent(configs: Sequence[TrainingConfig], device: str = "cpu", shaping: Shaping | None = None) -> Agent:
    """One agent with a member for each config; they may differ in the algorithm's `member_fields` only."""
    try:
        torch.ones(1, device=device).item()  # some devices, such as meta, hold no numbers
    except Exception as error:
        raise BadInput(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from None
    row = find_algorithm(configs[0].algorithm)
    agent: Agent = row.make_agent(configs, spec_of(configs[0].env), device=device, shaping=shaping)
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
    agent = make_agent(configs, options.device)  # first: what is wrong with the config is said before a folder is made
    runs: list[Run] = []
    try:
        for config, folder in zip(configs, folders, strict=True):
            runs.append(Run(folder, config, resume=options.resume, track=options.trackers, members=len(configs)))
        while True:
            try:
                return _train(agent, runs, options, progress)
            except Damaged as error:  # a checkpoint that cannot be used; without it nothing can be damaged
                for one in [one for one in runs if one.folder == error.run] or runs:
                    one.start_again(error)
                agent = make_agent(configs, options.device)
    finally:
        for one in runs:
            one.close()


def _train(agent: Agent, runs: Sequence[Run], options: RunOptions, progress: Progress | None) -> list[Outcome]:
    try:
        loop = Loop(agent, runs[0].config, [one.config.seed for one in runs], runs)
        _resume(loop, [one.load() for one in runs])
        outcomes = loop.run(checkpoint_every=options.checkpoint_every, progress=progress)
        for member, (one, outcome) in enumerate(zip(runs, outcomes, strict=True)):
            one.finish(outcome, agent.policy(member))
        return outcomes
    except Exception as error:
        for one in runs:
            one.fail(error)
        raise


def _resume(loop: Loop, states: Sequence[State | None]) -> None:
    saved = [state for state in states if state is not None]
    steps = {state.info["step"] for state in saved} | ({0} if len(saved) < len(states) else set())
    if len(steps) > 1:
        raise BadInput(f"the members were stopped at different steps {sorted(steps)}: resume them one by one")
    if not saved:
        return
    try:
        loop.load_state(saved)
    except (EnvFault, MemoryError):
        raise
    except Exception as error:
        raise Damaged(f"the checkpoint cannot be used ({type(error).__name__}: {error})") from None


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
