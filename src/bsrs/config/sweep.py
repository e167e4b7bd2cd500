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
    """Where the networks live: cpu, cuda, cuda:1, ..."""
    kernels: Literal["auto", "off"] = "auto"
    """Compiled gradient steps where there are any (a CPU and built-in networks), or PyTorch for everything."""
    tensorboard: bool = True
    """Write TensorBoard's event files too."""
    track: tuple[Literal["tensorboard", "csv", "wandb"], ...] = ()
    """Where records go as well: tensorboard, csv (metrics.csv in the run's folder), or wandb (Weights & Biases; with
    WANDB_MODE=offline nothing leaves this machine)."""

    def __post_init__(self) -> None:
        check_finite(self)
        if not re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d{1,4})?", self.device):  # whether it is there shows when it is used
            raise BadInput(f"device is {self.device[:40]!r}; expected cpu, cuda, cuda:1, mps or xpu")


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """How a run is executed."""

    resume: bool = True
    """Resume the unfinished run in the folder where it has the same settings. --no-resume refuses it."""
    threads: int = 0
    """Threads of PyTorch; 0 leaves its own choice."""
    checkpoint_every: int = 50_000
    """Env steps between two checkpoints; 0 writes none."""

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
    """Ids of the envs."""
    eta: tuple[float | str, ...] = (0.0,)
    """Shape-scales: numbers, auto, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA."""
    seeds: int = 1
    """How many seeds, from `first_seed` on."""
    first_seed: int = 0
    """The first of the seeds."""
    preset: str = ""
    """The algorithm's settings that are not given; by default those that suit the kind of env."""


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
    """Address of a cluster, for example auto or ray://head:10001; empty starts one on this machine."""
    cpus: float = 1.0
    """CPUs that each task asks for."""
    gpus: float = 0.0
    """GPUs that each task asks for."""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What is asked of Slurm for each job."""

    partition: str = ""
    """The partition; empty is the cluster's default."""
    account: str = ""
    """The account to charge."""
    qos: str = ""
    """Quality of service."""
    constraint: str = ""
    """Features that the node must have."""
    time_min: int = 240
    """Minutes; a job that needs longer is requeued and continues from its checkpoint."""
    cpus: int = 1
    """CPUs of each job."""
    gpus: int = 0
    """GPUs of each job."""
    mem_gb: float = 0.0
    """Memory of each job; 0 is the cluster's default."""
    parallel: int = 256
    """Jobs of one array that may run at the same time."""
    requeues: int = 20
    """How often one job may be put back for want of time."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Options):
    """How a sweep is executed."""

    executor: Literal["local", "ray", "slurm"] = "local"
    """Where the runs are trained: processes of this machine, a Ray cluster, or Slurm jobs."""
    workers: int = 0
    """Processes of the local executor; 0 is one for each core."""
    threads: int = 1
    """Threads of each worker."""
    members: int = 0
    """Runs that one worker trains together as a population, which is faster with small networks and on a GPU; 0
    chooses for the local executor as many as make a core fastest, and 1 elsewhere."""
    checkpoint_every: int = 0
    """Env steps between two checkpoints; 0 chooses 10,000, and 50,000 where observations are images."""
    retries: int = 2
    """How often a run is tried again after its worker died."""
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
    """Which runs of a store are meant; what is not given does not matter."""

    env: tuple[str, ...] = ()
    """Envs, with * and ? as in file names."""
    algorithm: tuple[str, ...] = ()
    """Algorithms."""
    eta: tuple[str, ...] = ()
    """Shape-scales."""
    seed: tuple[int, ...] = ()
    """Seeds."""
    state: tuple[RunState, ...] = ()
    """States."""
