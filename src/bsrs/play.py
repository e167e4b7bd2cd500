"""A trained run at play: pictures of its greedy episodes, and a video of them."""

import io
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsrs.envs import make
from bsrs.errors import BadInput, optional
from bsrs.rng import stream_seed
from bsrs.run import make_agent
from bsrs.store import read_model
from bsrs.writing import write_whole

Picture = NDArray[np.uint8]  # (height, width, 3)
NO_SCREEN = ("agg", "pdf", "svg", "ps", "cairo", "template")


class Play:
    """Greedy episodes of the run in `folder`. `scores` holds those that have ended."""

    def __init__(self, folder: Path, *, seed: int = 0, trust: bool = False) -> None:
        self._config, policy = read_model(folder, trust=trust, policy_only=True)
        self._agent = make_agent([self._config])
        self._agent.load_policy(0, policy)
        self._seed = stream_seed(seed, "play")
        self.scores: list[float] = []

    def pictures(self, episodes: int, most_steps: int) -> Iterator[Picture]:
        """Yield one picture per step, until that many episodes or steps."""
        envs = make(self._config.env, 1, self._seed, training=False, render=True)
        try:
            obs = envs.reset()
            for _ in range(most_steps):
                yield envs.render()
                self.scores += [episode.score for episode in envs.step(self._agent.greedy(obs[None])[0])]
                if len(self.scores) == episodes:
                    return
        finally:
            envs.close()


def write_video(pictures: Iterator[Picture], path: Path, fps: int) -> int:
    """Write a .gif or an .mp4, and return the number of pictures in it."""
    if path.suffix == ".mp4":
        return _write_mp4(pictures, path, fps)
    if path.suffix != ".gif":
        raise BadInput(f"the video {path} has the ending {path.suffix!r}; expected .gif or .mp4")
    from PIL import Image

    images = [Image.fromarray(picture) for picture in pictures]
    video = io.BytesIO()
    images[0].save(video, "GIF", save_all=True, append_images=images[1:], duration=1000 // fps, loop=0)
    write_whole(path, video.getvalue())
    return len(images)


def _write_mp4(pictures: Iterator[Picture], path: Path, fps: int) -> int:
    imageio_ffmpeg = optional("imageio_ffmpeg", "an .mp4 video", "video")
    first = next(pictures)
    height, width, _ = first.shape
    count = 0
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "video.mp4"
        video = imageio_ffmpeg.write_frames(str(file), (width, height), fps=fps, macro_block_size=1)
        video.send(None)
        for picture in itertools.chain([first], pictures):
            video.send(np.ascontiguousarray(picture))
            count += 1
        video.close()
        write_whole(path, file.read_bytes())
    return count


def show(pictures: Iterator[Picture], fps: int) -> None:
    """Show the pictures in a window."""
    import matplotlib.pyplot as plt

    if plt.get_backend().lower() in NO_SCREEN:
        raise BadInput("there is no screen to open a window on; use --out FILE.gif instead")
    image: Any = None
    for picture in pictures:
        if image is None:
            image = plt.imshow(picture)
            plt.axis("off")
        if not plt.get_fignums():  # the window was closed
            return
        image.set_data(picture)
        plt.pause(1 / fps)
