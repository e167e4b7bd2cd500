"""Variants of DQN and TD3 that single studies need: each is an agent of its own that overrides one method.

Importing this module registers them; `bsrs --plugin experiments.variants` does so for the command line.
"""

import dataclasses

import experiments.comparators
import experiments.controls
import experiments.parts  # noqa: F401  all three register what they define
from bsrs.config.settings import RunSettings
from bsrs.store.read import RunRecord

PLUGIN = "experiments.variants"
_NO_COMPARATOR = ("parts", "control", "target")


def as_options(settings: RunSettings) -> RunSettings:
    """Return a variant's settings as version 0.1 wrote them: options `parts`, `control` or `comparator` of DQN or TD3.

    Then its runs are of the same task as the baseline, and stored runs need no translation.
    """
    algorithm, _, variant = settings.algorithm.partition("-")
    if algorithm not in ("dqn", "td3") or not variant:
        return settings
    more = {} if variant in _NO_COMPARATOR else {"comparator": variant}
    return dataclasses.replace(settings, algorithm=algorithm, fields={**settings.fields, **more})


def with_options(run: RunRecord) -> RunRecord:
    """Return a run with its settings in that form."""
    return dataclasses.replace(run, config=as_options(run.config))
