"""How runs and sweeps are executed, and which runs a sweep is made of."""

import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from bsrs.config.training import MOST_STEPS, check_finite, check_range
from bsrs.errors import BadInput

RunState = Literal["running", "interrupted", "finished", "diverged", "failed", "damaged"]

MOST_RUNS = 1_000_000
MOST_THREADS = 10_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """How runs are executed, alone or in a sweep. Nothing here changes their results beyond rounding."""

    device: str = "cpu"
    """Train on this device: cpu, cuda, cuda:1, ..."""
    kernels: Literal["auto", "off"] = "auto"
    """Use compiled gradient steps where available (on a CPU, with built-in networks), or turn them off."""
    tensorboard: bool = True
    """Write TensorBoard event files."""
    track: tuple[Literal["tensorboard", "csv", "wandb"], ...] = ()
    """Also log to tensorboard, csv (metrics.csv in the run folder) or wandb (Weights & Biases; with WANDB_MODE=offline
    nothing leaves this machine)."""

    def __post_init__(self) -> None:
        check_finite(self)
        if not re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d{1,4})?", self.device):  # whether it is there shows when it is used
            raise BadInput(f"device is {self.device[:40]!r}; expected cpu, cuda, cuda:1, mps or xpu")


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """How a run is executed."""

    resume: bool = True
    """Resume an unfinished run in the folder if it has the same settings. With --no-resume that is an error."""
    threads: int = 0
    """Limit PyTorch to this many threads; 0 leaves the choice to PyTorch."""
    checkpoint_every: int = 50_000
    """Save a checkpoint every so many env steps; 0 saves none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0, "threads", high=MOST_THREADS)
        check_range(self, 0, "checkpoint_every", high=MOST_STEPS)

    @property
    def trackers(self) -> tuple[Literal["tensorboard", "csv", "wandb"], ...]:
        """All that are wanted, each once."""
        first: tuple[Literal["tensorboard"], ...] = ("tensorboard",) if self.tensorboard else ()
        return tuple(dict.fromkeys((*first, *self.track)))


@dataclass(frozen=True, kw_only=True)
class SweepLists:
    """What a sweep is made of, as it is said on the command line and in files."""

    env: tuple[str, ...]
    """Train on these envs."""
    eta: tuple[float | str, ...] = (0.0,)
    """Train with these etas: numbers, auto, linear:START:END:STEPS, cosine:START:END:STEPS or
    piecewise:STEP=ETA,STEP=ETA."""
    seeds: int = 1
    """Train this many seeds per setting."""
    first_seed: int = 0
    """Start counting seeds here."""
    preset: str = ""
    """Take settings that are not given from this preset. By default it suits the env."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig(SweepLists):
    """Which runs: every env with every combination of the grid, every eta and every seed."""

    algorithm: str
    """Name of a registered algorithm: dqn, td3, sac, tabular (exact tables) or one of your own."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Settings of the algorithm, the same for all runs."""
    only: dict[str, Any] = field(default_factory=dict)
    """Settings that single envs have instead, and a preset if it is another: env -> settings."""
    grid: dict[str, Any] = field(default_factory=dict)
    """Further settings with a list of values each; every combination is run."""

    def __post_init__(self) -> None:
        for name in ("env", "eta"):
            values = getattr(self, name)
            if not values:
                raise BadInput(f"the sweep has no {name}; expected at least one")
            if len(set(values)) < len(values):
                raise BadInput(f"the sweep has an {name} twice: {', '.join(map(str, values))}")
        check_finite(self)
        check_range(self, 1, "seeds", high=MOST_RUNS)
        check_range(self, 0, "first_seed", high=2**62)
        for name, values in self.grid.items():
            if not isinstance(values, (list, tuple)) or not values:
                raise BadInput(f"grid: {name} is {repr(values)[:80]}; expected a list of values")
        for env, settings in self.only.items():
            if not isinstance(settings, dict) or not isinstance(settings.get("preset", ""), str):
                raise BadInput(f"only: {env[:80]} is {repr(settings)[:80]}; expected a table of settings and a preset")
            if both := settings.keys() & self.grid.keys():
                raise BadInput(f"{min(both)} of {env[:80]} is in the grid too; expected it once")
        runs = math.prod(map(len, (self.env, self.eta, *self.grid.values()))) * self.seeds
        if runs > MOST_RUNS:
            raise BadInput(f"the sweep has {runs:,} runs; expected at most {MOST_RUNS:,}")


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Where Ray runs the tasks."""

    address: str = ""
    """Connect to this cluster, for example auto or ray://head:10001. Without it, Ray starts on this machine."""
    cpus: float = 1.0
    """Request this many CPUs per task."""
    gpus: float = 0.0
    """Request this many GPUs per task."""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What each job requests from Slurm."""

    partition: str = ""
    """Submit to this partition. By default it is the cluster's."""
    account: str = ""
    """Charge this account."""
    qos: str = ""
    """Request this quality of service."""
    constraint: str = ""
    """Require these node features."""
    time_min: int = 240
    """Set the time limit in minutes. A job that needs longer is requeued and resumes from its checkpoint."""
    cpus: int = 1
    """Request this many CPUs per job."""
    gpus: int = 0
    """Request this many GPUs per job."""
    mem_gb: float = 0.0
    """Request this much memory per job, in GB; 0 is the cluster's default."""
    parallel: int = 256
    """Run at most this many jobs of an array at the same time."""
    requeues: int = 20
    """Requeue a job that ran out of time at most this often."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Options):
    """How a sweep is executed."""

    executor: Literal["local", "ray", "slurm"] = "local"
    """Train in processes on this machine, on a Ray cluster, or in Slurm jobs."""
    workers: int = 0
    """Start this many local processes; 0 starts one per core."""
    threads: int = 1
    """Give each worker this many threads."""
    members: int = 0
    """Train this many runs together in one worker, as a population; faster with small networks and on a GPU. 0 chooses
    the fastest number for a local core, and 1 on a cluster."""
    checkpoint_every: int = 0
    """Save a checkpoint every so many env steps; 0 chooses 10,000, or 50,000 for image observations."""
    retries: int = 2
    """Retry a run this often if its worker dies."""
    ray: RayOptions = field(default_factory=RayOptions)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_finite(self.ray)
        check_finite(self.slurm)
        check_range(self, 0, "workers", "members", "retries", high=MOST_THREADS)
        check_range(self, 1, "threads", high=MOST_THREADS)
        check_range(self, 0, "checkpoint_every", high=MOST_STEPS)
        check_range(self.ray, 0, "cpus", "gpus", high=MOST_THREADS)
        check_range(self.slurm, 0, "gpus", "requeues", "mem_gb", high=10**6)
        check_range(self.slurm, 1, "time_min", "cpus", "parallel", high=10**6)

    @property
    def local_workers(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Select runs. Whatever is not given matches every run."""

    env: tuple[str, ...] = ()
    """Select runs on these envs; * and ? match as in file names."""
    algorithm: tuple[str, ...] = ()
    """Select runs of these algorithms."""
    eta: tuple[str, ...] = ()
    """Select runs with these etas."""
    seed: tuple[int, ...] = ()
    """Select runs with these seeds."""
    state: tuple[RunState, ...] = ()
    """Select runs in these states."""
