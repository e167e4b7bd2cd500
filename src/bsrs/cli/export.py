"""`bsrs export`: a trained policy for other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bsrs.errors import BadInput


@dataclass(frozen=True)
class ExportArguments:
    """What `bsrs export` takes."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    format: Literal["onnx", "torchscript"] = "onnx"
    """The kind of file. onnx needs the extra of that name."""
    out: Path | None = None
    """The file; by default policy.onnx or policy.pt in the run's folder."""
    env: str = ""
    """In place of the env that the run names."""
    trust: bool = False
    """Import the module that the run's env names, if it names one: only for folders whose origin you know."""


def export(arguments: ExportArguments) -> None:
    """Write the greedy policy of a run, checked against the run's own actions."""
    from bsrs.export import SUFFIX
    from bsrs.learners import load

    out = arguments.out or arguments.run / f"policy{SUFFIX[arguments.format]}"
    if out.is_dir():
        raise BadInput(f"{out} is a folder; expected a file to write the policy to")
    print(load(arguments.run, env=arguments.env or None, trust=arguments.trust).export(out, arguments.format))
