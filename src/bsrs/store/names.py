"""The names of run folders."""

from functools import lru_cache

from bsrs.config.base import identity
from bsrs.config.training import TrainingConfig


@lru_cache(maxsize=100_000)  # a sweep asks again and again
def folder_name(config: TrainingConfig) -> str:
    """A readable name for the run's folder that no other config shares."""
    env = config.env.replace("/", "-").replace(":", "-")
    eta = f"{config.eta:g}" if isinstance(config.eta, float) else config.eta.replace(":", "-")
    return f"{config.algorithm}-{env}-eta{eta}-seed{config.seed}-{identity(config)}"
