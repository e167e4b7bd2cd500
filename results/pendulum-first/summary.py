"""The figure and the table of this folder's runs: `python results/pendulum-first/summary.py`."""

from __future__ import annotations

from pathlib import Path

from bsrs.reproduce.continuous import draw_pendulum
from bsrs.reproduce.evidence import area, constant_etas, final, gain, means
from bsrs.stats.records import Series, read_runs, series_of

HERE = Path(__file__).parent
SOLVED = -200.0


def main() -> None:
    runs, broken = read_runs(HERE)
    assert not broken, broken
    etas = constant_etas(series_of(runs))
    draw_pendulum(etas)["pendulum"].savefig(HERE / "pendulum.png", dpi=150, bbox_inches="tight")
    zero = next(each for each in etas if each.eta == 0)
    print("| eta | seeds | mean over training | against eta = 0 | last 10 % of training | final score of each seed |")
    print("|---|---|---|---|---|---|")
    over_training, at_the_end = means(etas, area), means(etas, final)
    for i, each in enumerate(etas):
        whole = f"{over_training.estimate[i]:.0f} [{over_training.low[i]:.0f}, {over_training.high[i]:.0f}]"
        end = f"{at_the_end.estimate[i]:.0f} [{at_the_end.low[i]:.0f}, {at_the_end.high[i]:.0f}]"
        print(f"| {each.eta:g} | {len(each.seeds)} | {whole} | {_against(each, zero)} | {end} | {_scores(each)} |")


def _against(series: Series, zero: Series) -> str:
    effect = None if series is zero else gain(series, zero, area)
    return "" if effect is None else f"{effect.estimate:+.0f} [{effect.low:+.0f}, {effect.high:+.0f}]"


def _scores(series: Series) -> str:
    scores = [run.score for run in series.runs if run.score is not None]
    solved = sum(score > SOLVED for score in scores)
    return ", ".join(f"{score:.0f}" for score in scores) + f": {solved} of {len(scores)} above {SOLVED:g}"


if __name__ == "__main__":
    main()
