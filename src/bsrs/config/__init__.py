"""Configs: frozen, flat, typed dataclasses. They are the command line, the record, and a run's identity."""

from bsrs.config.base import from_dict, to_dict

__all__ = ["from_dict", "to_dict"]
