"""DQN on Atari: the tuned eta by game, the median over games, and how much eta matters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.bars import relative_advantages
from bsrs.figures.curves import learning_curves, sensitivity
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.reproduce.claims import Claim, at_least, between, judged
from bsrs.reproduce.evidence import SEED, Scope, constant_etas, final, too_small, tuned
from bsrs.reproduce.pictures import game_curves, stacked
from bsrs.stats import Interval, bootstrap, game_name, median, relative_advantage
from bsrs.stats.aggregates import Array
from bsrs.stats.records import Series
from bsrs.stats.summary import Games, atari_games, floor_of, mean_advantage

FEWEST_GAMES = 30  # for claims about a share of the paper's 40


class GameScores(NamedTuple):
    """What one game's bar is made of."""

    tuned: Array  # (seeds, 1): of the best eta above 0, chosen on the other seeds
    baseline: Array  # (seeds, 1): of eta = 0
    floor: float
    """Of random play."""


def draw_atari(series: Sequence[Series]) -> dict[str, Figure]:
    """Bars by game; median curves with the sensitivity panel, if there are two games or more."""
    figures = {}
    advantages = _advantages(series)
    if advantages:
        figure, ax = new_figure(max(3.0, 1.2 + 0.15 * len(advantages)), 2.9)
        each = [
            bootstrap(partial(mean_advantage, floor=game.floor), game.tuned, game.baseline, seed=SEED, paired=True)
            for game in advantages.values()
        ]
        relative_advantages(ax, list(advantages), stacked(each))
        figures["atari-games"] = figure
    games = atari_games(constant_etas(series))
    if games is not None:
        figure, (left, right) = new_figure(7.5, 2.9, 1, 2, width_ratios=[3, 2])
        learning_curves(left, game_curves(games), score="median human-normalised score")
        colours, labels = eta_colours(games.etas), [eta_label(eta) for eta in games.etas]
        medians = stacked([bootstrap(median, games.final[eta], seed=SEED) for eta in games.etas])
        baseline = games.etas.index(0.0) if 0.0 in games.etas else None
        sensitivity(right, labels, [colours[e] for e in games.etas], medians, name="final median", baseline=baseline)
        figures["atari-median"] = figure
    return figures


def judge_atari(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """The counts of games, the median, the best eta, and negative ones."""
    games = atari_games(constant_etas(series))
    small = too_small(series, scope)
    about = partial(judged, too_small=small, command=scope.command)
    return [
        *_counts(series, small, scope),
        _median_rises(games, about),
        _best_eta(games, about),
        _negative(games, about),
    ]


def _advantages(series: Sequence[Series]) -> dict[str, GameScores]:
    """By game."""
    found = {}
    for env in dict.fromkeys(each.env for each in series):
        own = [each for each in series if each.env == env]
        best = tuned(own, final)
        if best is not None:
            scores, baseline = best.best.scores[:, None], best.baseline[:, None]
            found[game_name(env) or env] = GameScores(scores, baseline, floor_of(own[0].task, own))
    return found


def _counts(series: Sequence[Series], small: str, scope: Scope) -> list[Claim]:
    """Shares of the games in which the tuned eta is better by so much."""
    advantages = _advantages(series)
    number = len(advantages)
    if not small and number < FEWEST_GAMES:
        small = f"too small to tell: {number} of at least {FEWEST_GAMES} games"

    def about(text: str, claimed: int, better_than: float) -> Claim:
        share = _share_better(list(advantages.values()), better_than) if advantages else None
        shown = f"{round(float(share.estimate) * number)} of {number} games" if share else ""
        verdict = partial(at_least, claimed=claimed / 40, nothing=-np.inf)
        return judged(text, share, shown, verdict, too_small=small, command=scope.command, percent=True)

    return [
        about("More than 10 % better in 21 of 40 games", 21, 0.1),
        about("More than 100 % better in 5 of 40 games", 5, 1.0),
        about("Not worse in 34 of 40 games", 34, -1e-9),
    ]


def _share_better(games: Sequence[GameScores], better_than: float) -> Interval:
    """The share of games whose relative advantage is above `better_than`, over as many seeds as all games have."""
    seeds = min(len(game.tuned) for game in games)
    tuned_scores = np.concatenate([game.tuned[:seeds] for game in games], axis=1)  # (seeds, games)
    baseline = np.concatenate([game.baseline[:seeds] for game in games], axis=1)
    floors = np.array([game.floor for game in games])

    def share(score: Array, zero: Array) -> Array:
        gains = relative_advantage(score.mean(axis=-2), zero.mean(axis=-2), floors)
        return np.asarray((gains > better_than).mean(axis=-1))

    return bootstrap(share, tuned_scores, baseline, seed=SEED, paired=True)


def _median_rises(games: Games | None, about: partial[Claim]) -> Claim:
    text = "The median human-normalised score rises from 45 % to 60 %"
    if games is None or 0.0 not in games.etas or len(games.etas) < 2:
        return about(text, None, "", at_least)
    best = max((eta for eta in games.etas if eta != 0), key=lambda eta: float(median(games.final[eta])))
    base, other = games.final[0.0], games.final[best]
    rise = bootstrap(lambda a, b: median(a) - median(b), other, base, seed=SEED, paired=True)
    shown = f"{median(base):.0%} to {median(other):.0%} at eta = {best:g}, {len(games.games)} games"
    return about(text, rise, shown, partial(at_least, claimed=0.15), percent=True)


def _best_eta(games: Games | None, about: partial[Claim]) -> Claim:
    text = "The best eta is near 2; beyond it the score falls"
    if games is None:
        return about(text, None, "", at_least)
    etas = np.array(games.etas)

    def best(*scores: Array) -> Array:
        return np.asarray(etas[np.stack([median(each) for each in scores]).argmax(axis=0)])

    found = bootstrap(best, *(games.final[eta] for eta in games.etas), seed=SEED, paired=True)
    return about(
        text, found, f"the highest final median is at eta = {found.estimate:g}", partial(between, low=1, high=3)
    )


def _negative(games: Games | None, about: partial[Claim]) -> Claim:
    text = "A negative eta is even worse than eta = 10"
    negative = [eta for eta in games.etas if eta < 0] if games else []
    if games is None or not negative or 10.0 not in games.etas:
        command = "a GPU cluster: bsrs sweep dqn --env (the 40 games) --eta -0.5 0 10 --seeds 5 --executor slurm"
        return about(text, None, "", at_least, command=command)  # the paper's own sweep has no negative eta
    below = bootstrap(
        lambda a, b: median(a) - median(b), games.final[10.0], games.final[negative[0]], seed=SEED, paired=True
    )
    return about(text, below, f"{below.estimate:+.0%} for eta = 10 over eta = {negative[0]:g}", at_least, percent=True)
