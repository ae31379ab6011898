"""Statistics of whole episodes, over the last of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from srl.core.types import Specs, Timestep

WINDOW = 100
"""Reported means are over so many of the last episodes."""


class EpisodeWindow:
    """The last episodes that ended: agents' returns, lengths, and the environment's statistics."""

    def __init__(self, specs: Specs, policies: Mapping[str, tuple[int, ...]]) -> None:
        self._specs = specs
        # In zero-sum play the mean return is 0: it is reported by policy, or by team.
        groups = policies if len(policies) > 1 else teams_of(specs.agents, policies).members
        self._groups = dict(groups) if len(groups) > 1 else {}
        self.total = 0
        width = len(specs.agents) + 1 + len(specs.statistics)
        self._episodes = np.zeros((WINDOW, width), np.float32)

    def add(self, timesteps: Timestep, envs: np.ndarray | None = None) -> None:
        """Takes in the episodes that end in timesteps [T, ...].

        Args:
            timesteps: Of N environments.
            envs: bool [N], those that count; all by default.
        """
        ended = ended_episodes(timesteps, len(self._specs.agents))
        step, env = np.nonzero(ended if envs is None else ended & envs)
        if not len(step):
            return
        returns = timesteps.episode_return.reshape(*ended.shape, -1)[step, env]
        length = timesteps.episode_length[step, env, None]
        statistics = timesteps.statistics[step, env]
        rows = np.concatenate([returns, length, statistics], -1)[-WINDOW:]
        # A ring: episode k of the run stands in row k % WINDOW.
        first = self.total + len(step) - len(rows)
        self._episodes[np.arange(first, first + len(rows)) % WINDOW] = rows
        self.total += len(step)

    def report(self) -> dict[str, float | int | None]:
        """Means over the window, None where no episode has ended.

        Those of a statistic are over the episodes that gave it, which are NaN otherwise; one that
        no episode gave is left out.
        """
        count = min(self.total, WINDOW)
        agents = len(self._specs.agents)
        columns: list[float | None] = [None] * self._episodes.shape[1]
        if count:
            columns = [mean_given(column) for column in self._episodes[:count].T]
        report: dict[str, float | int | None] = {
            "episode_return": _mean(columns[:agents]),
            "episode_length": columns[agents],
            "episodes": self.total,
        }
        for name, members in self._groups.items():
            report[f"episode_return/{name}"] = _mean([columns[i] for i in members])
        for name, value in zip(self._specs.statistics, columns[agents + 1 :], strict=True):
            if value is not None or not count:
                report[f"env/{name}"] = value
        return report

    def forget(self) -> None:
        """Leaves the episodes so far out of means; they stay counted."""
        self._episodes[:] = np.nan

    def state(self) -> dict[str, np.ndarray]:
        """Gives what `restore` needs."""
        return {"episodes": self._episodes.copy(), "total": np.asarray(self.total)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Goes on from a saved state; its statistics are forgotten where there are others now."""
        saved = state["episodes"]
        if saved.shape == self._episodes.shape:
            self._episodes[:] = saved
        else:
            known = len(self._specs.agents) + 1
            self._episodes[:, :known], self._episodes[:, known:] = saved[:, :known], np.nan
        self.total = int(state["total"])


class TaskWindows:
    """The last episodes of each task of a mixture, as `EpisodeWindow` has those of one."""

    def __init__(self, specs: Specs, policies: Mapping[str, tuple[int, ...]]) -> None:
        self._task_of = specs.task_of
        self._windows = {
            (k, specs.tasks[k]): EpisodeWindow(specs, policies)
            for k in dict.fromkeys(specs.task_of)
        }

    def add(self, timesteps: Timestep, envs: np.ndarray | None = None) -> None:
        """Takes in the episodes that end in timesteps [T, ...]; see `EpisodeWindow`."""
        count = timesteps.episode_length.shape[1]
        tasks = np.resize(self._task_of, count)
        for (number, _), window in self._windows.items():
            window.add(timesteps, tasks == number if envs is None else envs & (tasks == number))

    def report(self) -> dict[str, float | int | None]:
        """Means over each task's window, such as episode_return/TASK, and over the tasks."""
        reports = {name: window.report() for (_, name), window in self._windows.items()}
        whole: dict[str, float | int | None] = {}
        for name in dict.fromkeys(name for report in reports.values() for name in report):
            given = [report.get(name) for report in reports.values()]
            whole[name] = sum(filter(None, given)) if name == "episodes" else _mean(given)
        for task, report in reports.items():
            whole |= {f"{name}/{task}": value for name, value in report.items()}
        return whole

    def forget(self) -> None:
        """Leaves the episodes so far out of means; they stay counted."""
        for window in self._windows.values():
            window.forget()

    def state(self) -> dict[str, Any]:
        """Gives what `restore` needs, by task."""
        return {name: window.state() for (_, name), window in self._windows.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state."""
        for (_, name), window in self._windows.items():
            window.restore(state[name])


def episode_window(
    specs: Specs, policies: Mapping[str, tuple[int, ...]]
) -> EpisodeWindow | TaskWindows:
    """The last episodes of a run's environments, by task in a mixture."""
    return (TaskWindows if specs.tasks else EpisodeWindow)(specs, policies)


def evaluated_metrics(specs: Specs, policies: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Gives the names that metrics of evaluation can have after `eval/`.

    Args:
        specs: Of the environment.
        policies: The agents of each policy that is trained.
    """
    groups = [kinds_of(specs.agents), teams_of(specs.agents, policies).members, policies]
    names = dict.fromkeys(name for group in groups if len(group) > 1 for name in group)
    if len(policies) > 1:
        for team, agents in groups[1].items():
            if team not in policies and agents in policies.values():
                names.pop(team, None)  # it is there by the policy's name
    return [
        *("return", "length", "return_error", "return_std"),
        *(f"return/{name}" for name in (*names, *specs.tasks)),
        *(f"length/{name}" for name in specs.tasks),
        *(f"env/{name}" for name in specs.statistics),
    ]


def ended_episodes(timesteps: Timestep, agents: int) -> np.ndarray:
    """Marks the ends of episodes in timesteps [T, ...]: bool [T, N]; not where one was lost."""
    ended = np.logical_or(timesteps.terminated, timesteps.truncated)
    return ended.reshape(len(ended), -1, agents).all(-1) & ~timesteps.lost


def kinds_of(agents: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Agents by their name without its number: hider_0 and hider_1 are of the kind hider."""
    kinds: dict[str, list[int]] = {}
    for index, agent in enumerate(agents):
        kinds.setdefault(re.sub(r"_?\d+$", "", agent), []).append(index)
    return {name: tuple(indices) for name, indices in kinds.items()}


class Teams(NamedTuple):
    """The agents that are counted together, by name: those of a kind."""

    members: dict[str, tuple[int, ...]]
    """Their indices. Of a kind that is trained in part, the others are a team of their own."""
    fixed: frozenset[str]
    """The teams that fixed policies play."""


def teams_of(agents: tuple[str, ...], policies: Mapping[str, tuple[int, ...]]) -> Teams:
    """Gives the teams of an environment's agents.

    Args:
        agents: Their names.
        policies: The agents of each policy that is trained; fixed ones play the others.
    """
    trained = {index for own in policies.values() for index in own}
    members: dict[str, tuple[int, ...]] = {}
    fixed: set[str] = set()
    for kind, indices in kinds_of(agents).items():
        if own := tuple(index for index in indices if index in trained):
            members[kind] = own
        if others := tuple(index for index in indices if index not in trained):
            name = f"fixed_{kind}" if own else kind
            members[name] = others
            fixed.add(name)
    return Teams(members, frozenset(fixed))


def mean_given(values: np.ndarray) -> float | None:
    """The mean of those values [n] that are numbers; None of none."""
    given = values[~np.isnan(values)]
    return float(given.mean(dtype=np.float64)) if len(given) else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
