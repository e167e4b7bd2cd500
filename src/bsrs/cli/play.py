"""`bsrs play`: watch a trained run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class PlayArguments:
    """What `bsrs play` takes."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    out: Path = Path("play.gif")
    """The film: a .gif or an .mp4."""
    window: bool = False
    """Open a window instead."""
    episodes: int = 1
    """Greedy episodes to play."""
    most_steps: int = 2_000
    """Stop there, whatever happens."""
    seed: int = 0
    """Where the episodes begin."""
    fps: int = 30
    """Pictures per second."""
    trust: bool = False
    """Import the module that the run's env names, if it names one: only for folders whose origin you know."""


def play(arguments: PlayArguments) -> None:
    """Play a trained run and film it."""
    from bsrs.config.training import check_range
    from bsrs.play import Play, show, write_film

    check_range(arguments, 1, "episodes", "most_steps", "fps")
    player = Play(arguments.run, seed=arguments.seed, trust=arguments.trust)
    pictures = player.pictures(arguments.episodes, arguments.most_steps)
    if arguments.window:
        show(pictures, arguments.fps)
    else:
        count = write_film(pictures, arguments.out, arguments.fps)
        print(f"{arguments.out}: {count} pictures")
    ended = ", ".join(f"{score:g}" for score in player.scores)
    print(f"scores: {ended or 'no episode ended'}")
