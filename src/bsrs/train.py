"""The training loop: envs and an agent in, records out. It knows nothing of the algorithm, and no files.

Evaluation is a function of the weights and the seed alone: fresh envs, the same starts every time, raw scores.
So nothing of it needs to be saved, and the loop's own state is small: the step, the observations that the agent
acts on next, and the episodes that ended since the last record.
"""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np

from bsrs.agents.agent import Agent, Array, State, Transition, times_due
from bsrs.config.training import TrainingConfig
from bsrs.envs import Buffers, Envs, Episode, make
from bsrs.errors import say
from bsrs.rng import stream_seed

NOT_FINITE = "its policy gives actions that are not finite"


class Recorder(Protocol):
    """Where one member's records go: a run folder, or a list in memory."""

    def append(self, line: dict[str, Any]) -> None:
        """One record. Its content is the same whenever the run is repeated."""

    def timing(self, line: dict[str, Any]) -> None:
        """How long things took: never the same twice, so kept apart."""

    def save(self, state: State) -> None:
        """Write a checkpoint. A member of a population keeps the one before it, too."""

    def finish(self, outcome: "Outcome", policy: State) -> None:
        """The run has ended, with this trained policy."""


class Progress(Protocol):
    """Who watches: told of every record of the first member still training, and of the end."""

    def __call__(self, step: int, steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """How a member's run ended."""

    outcome: Literal["finished", "diverged"]
    step: int
    score: float | None
    """Mean raw score of the last evaluation."""
    reason: str = ""
    """Why it diverged, or what is wrong with it although it finished."""


@dataclass
class Member:
    """What the loop keeps of one member."""

    seed: int
    envs: Envs
    recorder: Recorder
    episodes: list[Episode]
    """Those that ended since the last record."""
    score: float | None = None
    outcome: Outcome | None = None
    warned: bool = False


class Loop:
    """One agent in its envs until `config.steps`; `config` is any member's, for they differ in eta and seed only."""

    def __init__(
        self, agent: Agent, config: TrainingConfig, seeds: Sequence[int], recorders: Sequence[Recorder]
    ) -> None:
        self.agent, self.config = agent, config
        self.members = [
            Member(seed, make(config.env, config.n_envs, seed, training=True), recorder, [])
            for seed, recorder in zip(seeds, recorders, strict=True)
        ]
        self.step = 0
        self.started = False
        # One block for all members, so that a step of all envs is stored at once.
        self.buffers = Buffers.empty(self.members[0].envs.spec, len(self.members), config.n_envs)
        for p, member in enumerate(self.members):
            member.envs.write_into(self.buffers.of(p))
        self._obs = np.empty_like(self.buffers.obs)  # (P, n, *obs)

    def run(
        self, *, checkpoint_every: int = 0, progress: Progress | None = None, updates_from: int = 0
    ) -> list[Outcome]:
        """Train to the end, or until every member has diverged; before the step `updates_from` only fill the replay."""
        self.start()
        watch = Stopwatch(self.step)
        try:
            while self.step < self.config.steps and self._training():
                self.advance(learn=self.step >= updates_from)
                if self._due(self.config.log_every):
                    self._record(watch.read(self.step), progress)
                if self._due(self.config.eval_every):
                    self._evaluate()
                if self._due(checkpoint_every):
                    self._save()
            outcomes = self._finish()
            if progress:
                progress(self.step, watch.rate or watch.read(self.step), self.members[0].score, {})
            return outcomes
        finally:
            for member in self.members:
                member.envs.close()

    def start(self) -> None:
        """Begin the first episodes, unless `load_state` has resumed others."""
        if not self.started:
            self.started = True
            for member in self.members:
                member.envs.reset()

    def advance(self, *, learn: bool = True) -> None:
        """Step every env once, and let the agent learn from it."""
        obs, next_obs, reward, terminated, truncated = self.buffers
        self._obs[...] = obs  # what is acted on: stepping the envs overwrites `obs`
        action = self.agent.act(self._obs, self.step)
        if action.dtype.kind == "f" and not math.isfinite(action.sum()):
            action = self._usable(action)
        for p, member in enumerate(self.members):
            if ended := member.envs.step(action[p]):
                member.episodes += ended
        self.step += self.config.n_envs
        self.agent.observe(Transition(self._obs, action, reward, next_obs, terminated, truncated))
        if learn:
            self.agent.update(self.step)

    def _usable(self, action: Array) -> Array:
        """Return the actions with zeros for those that are not finite: their members have diverged."""
        finite = np.isfinite(action)
        for p in range(len(self.members)):
            if not finite[p].all():
                self._diverged(p, NOT_FINITE)
        return np.where(finite, action, 0.0).astype(action.dtype)

    def _training(self) -> list[Member]:
        return [member for member in self.members if member.outcome is None]

    def _due(self, every: int) -> bool:
        return every > 0 and times_due(self.step, self.config.n_envs, every) > 0

    def _record(self, steps_per_s: float, progress: Progress | None) -> None:
        """A line of training records for each member; one whose values exploded gets its last."""
        learnt = self.agent.metrics()
        for p, (member, means, finding) in enumerate(zip(self.members, learnt, self.agent.findings(), strict=True)):
            if member.outcome is not None:
                continue
            line: dict[str, Any] = {"kind": "train", "step": self.step, **_episode_means(member.episodes), **means}
            member.episodes.clear()
            member.recorder.append(line)
            member.recorder.timing({"step": self.step, "steps_per_s": steps_per_s})
            if finding and finding.fatal:
                self._diverged(p, finding.what)
            elif finding and not member.warned:
                member.warned = True
                where = f"{self.config.env}, seed {member.seed}, step {self.step:,}"
                warnings.warn(f"{where}: {finding.what}", stacklevel=2)
            if progress and member is next(iter(self._training()), member):
                progress(self.step, steps_per_s, member.score, line)

    def _evaluate(self) -> None:
        scores = evaluate(self.agent, self.config, [member.seed for member in self.members])
        for p, (member, member_scores) in enumerate(zip(self.members, scores, strict=True)):
            if not np.isfinite(member_scores).all():
                self._diverged(p, NOT_FINITE)
            elif member.outcome is None:
                member.score = float(np.mean(member_scores))
                member.recorder.append(
                    {"kind": "eval", "step": self.step, "score": member.score, "scores": member_scores}
                )

    def _finish(self) -> list[Outcome]:
        if self._training() and not self._due(self.config.eval_every):
            self._evaluate()
        for p, (member, finding) in enumerate(zip(self.members, self.agent.findings(), strict=True)):
            if member.outcome is None:
                self._end(p, Outcome("finished", self.step, member.score, finding.what if finding else ""))
        return [member.outcome for member in self.members if member.outcome]

    def _diverged(self, p: int, reason: str) -> None:
        if self.members[p].outcome is None:
            self._end(p, Outcome("diverged", self.step, self.members[p].score, reason))

    def _end(self, p: int, outcome: Outcome) -> None:
        """End the run of one member, as if it had been alone."""
        self.members[p].outcome = outcome
        self.members[p].recorder.finish(outcome, self.agent.policy(p))

    # ---- checkpoints

    def _save(self) -> None:
        for p, member in enumerate(self.members):
            if member.outcome is None:
                member.recorder.save(self.state(p))

    def state(self, p: int) -> State:
        """Everything that member `p` needs to resume exactly."""
        member = self.members[p]
        arrays, info = member.envs.state()
        state = State(info={"step": self.step, "episodes": member.episodes, "score": member.score})
        state.add("agent", self.agent.state(p))
        state.add("envs", State(arrays=arrays, info=info))
        return state

    def load_state(self, p: int, state: State) -> None:
        """Continue member `p` from its state; all members must be at the same step."""
        self.step, self.started, member = state.info["step"], True, self.members[p]
        self.agent.load_state(p, state.part("agent"))
        envs = state.part("envs")
        member.envs.load_state(envs.arrays, envs.info)
        member.episodes = [Episode(*episode) for episode in state.info["episodes"]]
        member.score = state.info["score"]


LONGEST_EPISODE = 27_000
"""Steps after which an evaluation stops: those of 108,000 frames, the usual limit for Atari."""


def evaluate(agent: Agent, config: TrainingConfig, seeds: Sequence[int]) -> list[list[float]]:
    """Raw scores of `config.eval_episodes` greedy episodes of each member: every env plays one, from a start that
    depends on the member's seed only. What has ended is neither stepped nor computed any more; what never ends, as
    where a submarine of MinAtar's Seaquest stays at the surface, has the score that it has at LONGEST_EPISODE.

    The scores of a member whose actions are not finite are NaN.
    """
    all_envs = [make(config.env, config.eval_episodes, stream_seed(seed, "eval"), training=False) for seed in seeds]
    try:
        obs = [envs.reset().copy() for envs in all_envs]
        running = [list(range(config.eval_episodes)) for _ in seeds]
        broken: set[int] = set()
        for _ in range(LONGEST_EPISODE):
            if not any(running):
                break
            actions = _greedy(agent, obs, 0 if all_envs[0].spec.is_large else config.eval_episodes)
            for p, envs in enumerate(all_envs):
                if not np.isfinite(actions[p, : len(running[p])]).all():
                    broken.add(p)
                    running[p], obs[p] = [], obs[p][:0]
                elif running[p]:
                    next_obs, over = envs.step_some(running[p], envs.unpacked(actions[p, : len(running[p])]))
                    obs[p] = next_obs[np.logical_not(over)] if any(over) else next_obs
                    running[p] = [env for env, ended in zip(running[p], over, strict=True) if not ended]
        if endless := sum(map(len, running)):
            _say_endless(config.env, endless, sum(envs.n for envs in all_envs))
        return [[math.nan] * envs.n if p in broken else envs.returns for p, envs in enumerate(all_envs)]
    finally:
        for envs in all_envs:
            envs.close()


@cache  # once for each env and number of episodes
def _say_endless(env: str, endless: int, episodes: int) -> None:
    say(
        f"{endless} of {episodes} evaluation episodes of {env} had no end after {LONGEST_EPISODE:,} steps and count as"
        " they were then; gymnasium.wrappers.TimeLimit gives an env an end"
    )


def _greedy(agent: Agent, obs: Sequence[Array], rows: int) -> Array:
    """Greedy actions for the members' observations (k, *obs), k differing between them: (P, most of k).

    Matrix products round differently for different numbers of rows. So that a member acts as it would alone, this
    number must not depend on the others: it is `rows` for everybody or, if that is 0, each member's own k.
    """
    if rows:
        actions: Array = agent.greedy(padded(obs, rows))
        return actions
    found = {k: agent.greedy(padded(obs, k)) for k in {len(each) for each in obs} - {0}}
    most = max(found)
    out = np.zeros((len(obs), most, *found[most].shape[2:]), found[most].dtype)
    for p, each in enumerate(obs):
        if len(each):
            out[p, : len(each)] = found[len(each)][p]
    return out


def padded(obs: Sequence[Array], rows: int) -> Array:
    """Put the members' observations (k, *obs), k differing between them, into one array (P, rows, *obs)."""
    together = np.zeros((len(obs), rows, *obs[0].shape[1:]), obs[0].dtype)
    for row, each in zip(together, obs, strict=True):
        row[: len(each)] = each[:rows]
    return together


def _episode_means(episodes: Sequence[Episode]) -> dict[str, float]:
    if not episodes:
        return {"episodes": 0}
    returns, lengths = np.array(episodes, dtype=float).T
    return {"episodes": len(episodes), "return": float(returns.mean()), "length": float(lengths.mean())}


class Stopwatch:
    """Steps per second since it was last read."""

    def __init__(self, step: int) -> None:
        self._step, self._time = step, time.perf_counter()
        self.rate = 0.0

    def read(self, step: int) -> float:
        now = time.perf_counter()
        self.rate = (step - self._step) / max(now - self._time, 1e-9)
        self._step, self._time = step, now
        return self.rate
