"""The model card of a trained run: a README.md in its folder, so that the folder can be shared as it is."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bsrs.config.settings import RunSettings
from bsrs.naming import PREFIX

NAME = "README.md"


def model_card(
    folder: Path, settings: RunSettings, result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> str:
    """Write down what was trained, how well it plays, and how to use and repeat it."""
    about = {"algorithm": settings.algorithm.upper(), "env": settings.env, "eta": settings.eta, "seed": settings.seed}
    rows = [*about.items(), ("steps", f"{result['step']:,}"), ("outcome", _outcome(result))]
    scores = [line["scores"] for line in metrics if line["kind"] == "eval"]
    rows += [("score", _score(scores[-1]))] if scores else []
    rows += [("training time", f"{result['wall_time_s']:.0f} s")]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    parts = [
        f"# {about['algorithm']} on {settings.env}, eta {settings.eta}",
        "A model trained with `bsrs`, bootstrapped reward shaping.",
        "| | |\n|---|---|\n" + "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows),
        f"## Use it\n\n```python\nimport bsrs\n\nagent = bsrs.load({folder.name!r}{_needs(settings)})\n"
        "action = agent.predict(obs)\n```",
        f"`bsrs play {shlex.quote(folder.name)}` records a video. `metrics.jsonl` has the learning curve.",
        f"## Repeat it\n\n{_command(settings)}",
        "## Settings\n\n" + "\n".join(f"- {name}: `{_cell(value)}`" for name, value in settings.fields.items()),
        f"## Versions\n\n{versions}",
    ]
    return "\n\n".join(parts) + "\n"


def _outcome(result: Mapping[str, Any]) -> str:
    return f"{result['outcome']} ({result['reason']})" if result["reason"] else str(result["outcome"])


def _score(scores: Sequence[float]) -> str:
    """Format the mean with its 95% interval over the episodes of the last evaluation, by Student's t."""
    n, mean = len(scores), math.fsum(scores) / len(scores)
    if n < 2:
        return f"{mean:.2f} (one episode)"
    from scipy.special import stdtrit  # here, because most who import this never write a card

    spread = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / (n - 1))
    half = float(stdtrit(n - 1, 0.975)) * spread / math.sqrt(n)
    return f"{mean:.2f}, 95% interval {mean - half:.2f} to {mean + half:.2f} over {n} greedy episodes"


def _needs(settings: RunSettings) -> str:
    """Name the arguments that `load` needs besides the folder."""
    objects = [name for name, value in settings.fields.items() if str(value).startswith(PREFIX)]
    return "".join(f", {name}=..." for name in objects)


def _command(settings: RunSettings) -> str:
    if settings.algorithm == "tabular" or _needs(settings):
        return "It was made in Python, or as part of a sweep: the settings below say how."
    words = ["bsrs", "train", settings.algorithm]
    for name, value in settings.fields.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool) or value is None or value == "":
            words += [flag] if value is True else []
        else:
            words += [flag, *map(str, value if isinstance(value, tuple) else [value])]
    return f"```sh\n{shlex.join(words)}\n```"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("`", "'")
