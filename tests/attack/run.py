"""The attack on everything that is promised about runs: `make attack`; shorter, `python tests/attack/run.py --short`.

Prints a table of counts; the exit code is 1 if anything went wrong.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "SDL_VIDEODRIVER"):
    os.environ.setdefault(name, "dummy" if name.startswith("SDL") else "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]  # tests, and experiments

from attack import damage, fuzz, kills, pickles  # noqa: E402
from attack.calls import import_everything, stop_when_told  # noqa: E402


def main(short: bool, parts: list[str]) -> int:
    began = time.monotonic()
    import_everything()
    stop_when_told()
    number = SHORT if short else FULL
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        root = damage.store(Path(folder))
        if "damage" in parts:
            _take(damage.attack(root, every=number["every"]), counts, wrong)
        if "fuzz" in parts:
            _take(fuzz.attack(root, number["inputs"], number["seed"]), counts, wrong)
    if "pickles" in parts:
        _take(pickles.attack(number["pickles"], number["seed"]), counts, wrong)
    if "kills" in parts:
        killed, differences = kills.attack(number["kills"], number["seed"], forkserver=number["forkserver"])
        counts += Counter({f"kills, {how}": times for how, times in killed.items()})
        counts["kills in all"] = killed.total()
        wrong += differences
    print("\n| what | times |\n|---|---|")
    for what, times in sorted(counts.items()):
        print(f"| {what} | {times:,} |")
    print(f"| **differences, tracebacks, hangs, damage not told** | **{len(wrong)}** |")
    print(f"\n{time.monotonic() - began:.0f} s", file=sys.stderr)
    for what in wrong:
        print(f"\nWRONG {what}")
    return 1 if wrong else 0


FULL = {"kills": 1_000, "forkserver": 20, "inputs": 10_000, "every": 1, "pickles": 500, "seed": 0}
SHORT = {"kills": 25, "forkserver": 0, "inputs": 60, "every": 14, "pickles": 30, "seed": 0}


def _take(found: tuple[Counter[str], list[str]], counts: Counter[str], wrong: list[str]) -> None:
    counts += found[0]
    wrong += found[1]


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word[0] != "-" and "=" not in word]
    FULL |= {name: int(value) for name, _, value in (w.partition("=") for w in sys.argv[1:] if "=" in w)}
    sys.exit(main("--short" in sys.argv, arguments or ["damage", "fuzz", "pickles", "kills"]))
