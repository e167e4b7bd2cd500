"""DQN on Atari and MinAtar: the tuned eta by game, the median over games, and how much eta matters."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.curves import Curve, learning_curves, sensitivity
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.rng import stream
from bsrs.stats import BestOf, Comparison, Verdict, best_of, bootstrap, game_name, median, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import LEVEL, relative_advantage
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN, minatar_game
from bsrs.stats.summary import SEED, Games, games_together, mean_advantage, task_reference
from experiments.bars import UPRIGHT, relative_advantages
from experiments.claims import Claim, Scope, Tuned, constant_etas, failures_text, final, judged, too_small, tuned
from experiments.figures import stacked
from experiments.pooling import gains

FEWEST_GAMES = 30  # for claims about a share of the paper's 40
NEAR_TWO = (1.0, 3.0)
DRAWS = 4_000

Game = tuple[Tuned, float]  # what its bar is made of, and the score of random play


def draw_games(name: str, series: Sequence[Series]) -> dict[str, Figure]:
    """Draw bars by game; median curves with both sensitivity panels, if there are two games or more."""
    figures = {}
    games = _tuned_games(series)
    if games:
        width = 0.9 if len(games) <= UPRIGHT else 0.15  # for a name
        figure, ax = new_figure(max(3.0, 1.2 + width * len(games)), 2.9)
        each = [
            bootstrap(mean_advantage(floor), game.held_out[:, None], game.baseline[:, None], seed=SEED)
            for game, floor in games.values()
        ]
        paper = np.array([mean_advantage(f)(g.same_seeds[:, None], g.baseline[:, None]) for g, f in games.values()])
        relative_advantages(ax, list(games), stacked(each), same_seeds=paper)
        figures[f"{name}-games"] = figure
    all_games = games_together(series)
    if all_games is not None:
        figures[f"{name}-median"] = _median_figure(all_games)
    return figures


def _median_figure(games: Games) -> Figure:
    figure, (left, middle, right) = new_figure(9.5, 2.9, 1, 3, width_ratios=[3, 2, 2])
    colours, labels = eta_colours(games.etas), [eta_label(eta) for eta in games.etas]
    medians = {eta: bootstrap(median, games.curves[eta], seed=SEED) for eta in games.etas}
    curves = [Curve(eta_label(eta), colours[eta], games.steps, medians[eta]) for eta in games.etas]
    learning_curves(left, curves, score=f"median {games.score}")
    baseline = games.etas.index(0.0) if 0.0 in games.etas else None
    for ax, name, scores, statistic in (
        (middle, "mean of the median\nover training (the paper's)", games.curves, lambda x: median(x).mean(axis=-1)),
        (right, "median at the end", games.final, median),
    ):
        found = stacked([bootstrap(statistic, scores[eta], seed=SEED) for eta in games.etas])
        sensitivity(ax, labels, [colours[eta] for eta in games.etas], found, name=name, baseline=baseline)
    return figure


def judge_atari(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge the counts of games, the median, the best eta, and negative ones."""
    games = games_together(constant_etas(series))
    small = too_small(series, scope)
    zero, above = (
        [each for each in constant_etas(series) if is_zero == (each.eta == 0.0)] for is_zero in (True, False)
    )
    about = partial(judged, scope=scope, small=small, failures=failures_text(above, zero))
    return [
        *_counts(series, small, scope),
        _median_rises(games, about),
        _best_eta(games, about),
        _negative(games, about),
    ]


def judge_minatar(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge our own question, and only one: six seeds cannot answer several after correction."""
    return gains(("(Ours) On MinAtar a tuned eta beats eta = 0, all games together", ""), series, scope)


def _tuned_games(series: Sequence[Series]) -> dict[str, Game]:
    """Tune eta on each game, by name."""
    found = {}
    for env in dict.fromkeys(each.env for each in series):
        own = [each for each in series if each.env == env]
        best = tuned(own, final)
        reference = task_reference(own[0].task, own)
        if best is not None and reference is not None:
            found[game_name(env) or minatar_game(env) or env] = (best, reference.random)
    return found


def _counts(series: Sequence[Series], small: str, scope: Scope) -> list[Claim]:
    """Judge the shares of games in which the tuned eta is better by so much."""
    games = list(_tuned_games(series).values())
    if not small and len(games) < FEWEST_GAMES:
        small = f"too small to tell: {len(games)} of at least {FEWEST_GAMES} games"

    def about(text: str, claimed: int, better_than: float) -> Claim:
        if not games:
            return judged(text, None, "", scope, small=small)
        found, naive = _share_better(games, better_than, claimed / 40)
        count = round(found.mean * len(games))
        shown = f"{count} of {len(games)} games with eta chosen on other seeds (as in the paper, on the same: {naive})"
        chosen = [each for game, _ in games for each in game.chosen]
        failures = failures_text(chosen, [game.plain for game, _ in games])
        return judged(text, found, shown, scope, small=small, percent=True, failures=failures)

    return [
        about("More than 10% better in 21 of 40 games", 21, 0.1),
        about("More than 100% better in 5 of 40 games", 5, 1.0),
        about(f"Not worse (by more than {MARGIN:.0%}) in 34 of 40 games", 34, -MARGIN),
    ]


def _share_better(games: Sequence[Game], better_than: float, claimed: float) -> tuple[Comparison, int]:
    """Compute the share of games whose relative advantage is above `better_than`, and their number if eta is chosen as
    in the paper. The claim holds if the share is as large as claimed and noise would not make as many: each seed's
    difference with its sign flipped at random. It does not hold if the exact interval stays below the claim."""
    from scipy.stats import binomtest

    seeds = min(len(game.baseline) for game, _ in games)
    held_out, same, zero = (
        np.stack([getattr(game, name)[:seeds] for game, _ in games], axis=1)  # (seeds, games)
        for name in ("held_out", "same_seeds", "baseline")
    )
    floors = np.array([floor for _, floor in games])

    def count(scores: Array) -> Array:
        gains = relative_advantage(scores.mean(axis=-2), zero.mean(axis=-2), floors)
        return np.asarray((gains > better_than).sum(axis=-1))

    number, of = int(count(held_out)), len(games)
    signs = stream(SEED, "signs").choice([1.0, -1.0], size=(DRAWS, *zero.shape))
    by_noise = (1 + int((count(zero + signs * (held_out - zero)) >= number).sum())) / (1 + DRAWS)
    low, high = binomtest(number, of).proportion_ci(method="exact")
    below = float(binomtest(number, of, claimed, alternative="less").pvalue)
    verdict: Verdict = "inconclusive"
    if high < claimed:
        verdict = "does not hold"
    elif number >= claimed * of and by_noise <= LEVEL / 2:
        verdict = "holds"
    p = min(1.0, 2 * (below if verdict == "does not hold" else by_noise))
    return Comparison(number / of, low, high, p, of, verdict), int(count(same))


def _median_rises(games: Games | None, about: partial[Claim]) -> Claim:
    text = "The median human-normalised score rises from 45% to 60%"
    above = [eta for eta in games.constants if eta > 0] if games else []
    if games is None or 0.0 not in games.constants or not above or len(games.seeds) < 2:
        return about(text, None, "")
    rise = _best_median(games, above, 0.0, games.final, claimed=0.15)
    naive = max(above, key=lambda eta: float(median(games.final[eta])))
    first, last = (median(games.final[eta]) for eta in (0.0, naive))
    shown = (
        f"{rise.gain.mean:+.0%} with eta chosen on other seeds (as in the paper, on the same: {first:.0%} to {last:.0%}"
        f" at eta = {naive:g}), {len(games.games)} games"
    )
    return about(text, rise.gain, shown, percent=True)


def _best_median(
    games: Games, etas: Sequence[float], baseline: float, scores: dict[float | str, Array], claimed: float = 0.0
) -> BestOf:
    """Compare the best of `etas` with the baseline, by each seed's median over games (over training: its mean)."""
    by_seed = {eta: np.median(scores[eta], axis=-1).reshape(-1, len(games.seeds)).mean(axis=0) for eta in games.etas}
    return best_of(np.stack([by_seed[eta] for eta in etas]), by_seed[baseline], claimed=claimed, seed=SEED)


def _best_eta(games: Games | None, about: partial[Claim]) -> Claim:
    """Judge both parts, which must hold: etas near 2 above eta = 0, and above the largest."""
    text = "The best eta is near 2; beyond it the score falls"
    near = [eta for eta in games.constants if NEAR_TWO[0] <= eta <= NEAR_TWO[1]] if games else []
    if (
        games is None
        or not near
        or 0.0 not in games.constants
        or games.constants[-1] <= NEAR_TWO[1]
        or len(games.seeds) < 2
    ):
        return about(text, None, "")
    parts = [_best_median(games, near, other, games.curves).gain for other in (0.0, games.constants[-1])]
    weaker = max(parts, key=lambda part: (part.verdict != "holds", part.p))
    best = max(games.constants, key=lambda eta: float(median(games.curves[eta]).mean()))
    shown = (
        f"eta in 1 to 3: {parts[0].mean:+.0%} over eta = 0, {parts[1].mean:+.0%} over eta = {games.constants[-1]:g};"
        f" the highest mean of the median over training is at eta = {best:g}"
    )
    return about(text, weaker, shown, percent=True)


def _negative(games: Games | None, about: partial[Claim]) -> Claim:
    text = "A negative eta is even worse than eta = 10"
    negative = [eta for eta in games.constants if eta < 0] if games else []
    if games is None or not negative or 10.0 not in games.constants:
        command = "a GPU cluster: bsrs sweep dqn --env (the 40 games) --eta -0.5 0 10 --seeds 6 --executor slurm"
        return about(
            text, None, "", scope=replace(about.keywords["scope"], command=command)
        )  # not in the paper's sweep
    ten, below = (np.median(games.final[eta], axis=-1) for eta in (10.0, negative[0]))
    effect = paired_difference(ten, below, seed=SEED)
    return about(text, effect, f"{effect.mean:+.0%} for eta = 10 over eta = {negative[0]:g}", percent=True)
