"""Count the functions of this project that each walk of architecture.md passes through: `python docs/walks.py`.

Every function counts once, with its methods, properties and comprehensions; compiled functions are not seen.
"""

import contextlib
import io
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
OURS = (str(ROOT / "src" / "bsrs"), str(ROOT / "experiments"))


@contextlib.contextmanager
def traced(only: tuple[str, ...] = OURS) -> Iterator[dict[str, int]]:
    """Collect the functions called inside, and how often each was called."""
    found: dict[str, int] = {}

    def trace(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(only) and not code.co_name.startswith("<"):
            name = f"{Path(code.co_filename).stem}.{code.co_qualname}"
            found[name] = found.get(name, 0) + 1

    sys.setprofile(trace)
    try:
        yield found
    finally:
        sys.setprofile(None)


def training_step(algorithm: str, env: str, *, update_only: bool = False, **options: Any) -> dict[str, int]:
    """One step of the loop with one gradient step, shaped; or the update alone, TD3's with the actor's."""
    from bsrs.envs.defaults import default_preset
    from bsrs.run import Records, make_agent
    from bsrs.train import Loop

    fields = {"learning_starts": 4, "train_freq": 1, "gradient_steps": 1, "batch_size": 16, "buffer_size": 100}
    config = default_preset(algorithm, env, eta=1.0, **fields)
    agent = make_agent([config], **options)
    loop = Loop(agent, config, [0], [Records()])
    loop.start()
    for _ in range(9):
        loop.advance()
    with traced() as found:
        agent.update(10) if update_only else loop.advance()
    return found


def sweep() -> dict[str, int]:
    """Two runs in this process: the functions of the sweep, of the run and of the registry."""
    import bsrs.run  # noqa: F401  before the trace, which would count the bodies of its classes
    from bsrs.sweep import view
    from bsrs.sweep.conduct import run_sweep
    from bsrs.sweep.plan import expand
    from sweeping import OPTIONS, HereExecutor, small_sweep

    view.SECONDS_BETWEEN_LINES = math.inf  # however long compiling takes
    places = ("sweep", "run.py", "config/algorithms.py")
    with tempfile.TemporaryDirectory() as folder, traced(tuple(f"{OURS[0]}/{place}" for place in places)) as found:
        run_sweep(expand(small_sweep()), Path(folder), OPTIONS, executor=HereExecutor())
    return found


def experiment() -> dict[str, int]:
    """`python -m experiments pendulum --scale smoke` with every run done."""
    from experiments.__main__ import main

    with tempfile.TemporaryDirectory() as folder:
        words = ["pendulum", "--scale", "smoke", "--out", folder, "--workers", "1"]
        main(words)
        with traced() as found:
            main(words)
    return found


def shaped_model() -> tuple[dict[str, int], dict[str, int]]:
    """`bsrs.sb3.shape`: the call, and one batch."""
    import stable_baselines3

    import bsrs.sb3

    model = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", learning_starts=10, buffer_size=100, batch_size=8)
    model.learn(20)
    with traced() as call:
        bsrs.sb3.shape(model, eta=0.5)
    model.learn(8, reset_num_timesteps=False)
    with traced() as batch:
        model.train(gradient_steps=1, batch_size=8)
    return call, batch


WALKS: dict[str, Callable[[], Any]] = {
    "a DQN step": lambda: training_step("dqn", "CartPole-v1"),
    "a DQN step, --kernels off": lambda: training_step("dqn", "CartPole-v1", use_kernels=False),
    "a TD3 update": lambda: training_step("td3", "Pendulum-v1", update_only=True),
    "a TD3 update, --kernels off": lambda: training_step("td3", "Pendulum-v1", update_only=True, use_kernels=False),
    "a sweep": sweep,
    "an experiment": experiment,
    "sb3.shape": shaped_model,
}


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for name, walk in WALKS.items():
        if not wanted or any(word in name for word in wanted if word != "-v"):
            with contextlib.redirect_stdout(io.StringIO()):
                found = walk()
            parts = found if isinstance(found, tuple) else (found,)
            counts = [f"{len(part)} functions, {sum(part.values())} calls" for part in parts]
            print(f"{name}: {' + '.join(counts)}", flush=True)
            if "-v" in wanted:
                print(*(f"    {line}" for part in parts for line in part), sep="\n")


if __name__ == "__main__":
    main()
