"""Workers that are started and restarted together, and the controller's state of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srl.core.errors import RunError, UserError, WorkerLost
from srl.dataflow.plan import Plan
from srl.launch.hosts.hosts import Process
from srl.loop.busy_time import BusyTime
from srl.loop.stage import BEGIN_SECONDS, Stage
from srl.run.terminal import PATIENCE_SECONDS

_TRAINER_DEATHS, _OTHER_DEATHS = 5, 10  # in a row, without progress
_SAME_FAILURES = 3  # in a row, that end a run
_FORGIVEN_SECONDS = 300.0  # of work, after which a failure is no more in a row with the one before
_MOST_DELAY_SECONDS = 5.0
_LEAST_SILENCE = 3.0  # seconds: a worker sends a beat once in one
_UNCOUNTED_DELAY_SECONDS = 0.5  # before a start after a death that does not count


@dataclass
class Member:
    """One worker, through all its processes."""

    fragment: str
    replica: int
    number: int
    log: Path
    gang: Gang = field(repr=False)
    busy: BusyTime = field(repr=False)
    """The time of all workers of the fragment, since it was last taken."""
    process: Process | None = None
    connected: bool = False
    """True if messages reach it."""
    addresses: dict[str, str] | None = None
    """The addresses that it has registered; None before."""
    started: float | None = None
    """When it was sent START."""
    sent_peers: Any = None
    """The last message about its peers since."""
    heard: float = 0.0
    """When it was started, or last sent anything."""
    spawned: float = 0.0
    waits_since: float = 0.0
    """Since when there has been no room for it on any host; 0 if there is."""
    reported_waiting: bool = False
    beat: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    killed: str = ""
    stopped: bool = False
    """True if it has reported that it has finished."""
    drained: bool = False
    done: bool = False
    """True if it has ended and is not needed any more."""

    @property
    def name(self) -> str:
        """The name in messages and logs."""
        return f"{self.fragment}-{self.replica}"

    @property
    def ready(self) -> bool:
        """True if its main loop has begun, with all code loaded and compiled."""
        return self.process is not None and bool(self.beat.get("grown"))

    def forget(self) -> None:
        """Forgets what belongs to a process that has ended."""
        self.process = self.addresses = self.started = self.failure = None
        self.beat = {}
        self.killed, self.connected, self.stopped, self.drained = "", False, False, False

    def take_beat(self, beat: dict[str, Any]) -> None:
        """Notes a beat; counters that have grown forgive the gang's deaths."""
        self.beat = beat
        self.busy.add_reported(beat.get("seconds", {}))
        if any(grown > 0 for grown in beat["grown"].values()):
            self.gang.deaths, self.gang.progressed = 0, True

    @property
    def stage(self) -> str:
        """The stage that it is in, by its last beat."""
        return self.beat.get("stage", Stage.STARTING)

    @property
    def updates(self) -> int:
        """The updates made so far, by its last beat; 0 until this process has made one."""
        made = self.beat.get("grown", {}).get("updates", 0) > 0
        return self.beat.get("updates", 0) if made else 0

    @property
    def compiles(self) -> bool:
        """True if it waits for a compiler, of which a stack would show no more."""
        return self.stage == Stage.COMPILING

    @property
    def delay(self) -> str:
        """The reason why nothing is to be expected of it soon, to follow its name."""
        idle = self.beat.get("idle", 0.0)
        return "still compiles" if self.compiles else f"has shown no progress for {idle:.0f} s"

    @property
    def overdue(self) -> bool:
        """True if no progress is to be expected of it soon, by its longest wait so far.

        A compiling worker has done no work yet that could be lost.
        """
        if self.compiles:
            return True
        patience = max(PATIENCE_SECONDS, 3 * self.beat.get("longest", 0.0))
        return self.stage != Stage.SAVING and self.beat.get("idle", 0.0) > patience

    def trouble(self, now: float, limit_seconds: float) -> str:
        """Describes what is wrong with the running process; empty if nothing.

        Args:
            now: Of the monotonic clock.
            limit_seconds: That it may be silent for, as one is that is stopped or gets no
                processor, and that its main loop may take without showing progress.
        """
        assert self.process is not None
        silent, begin_seconds = now - self.heard, max(BEGIN_SECONDS, limit_seconds)
        if silent > (silence := max(limit_seconds, _LEAST_SILENCE)):
            state = self.process.state()
            if self.connected or state.startswith("stopped"):  # else it is still connecting
                allowed = f"--heartbeat-seconds allows {silence:g} s"
                return f"has not been heard of for {silent:.0f} s: it is {state}, and {allowed}"
        if self.addresses is None:
            idle, limit = now - self.spawned, begin_seconds
        elif self.started is None:  # it waits for others
            return ""
        else:
            idle = min(self.beat.get("idle", 0.0), now - self.started)
            running = self.beat.get("state") != "starting"
            limit = limit_seconds if running else begin_seconds
        if idle <= limit:
            return ""
        allowed = f"--heartbeat-seconds allows {limit:g} s"
        if limit != limit_seconds:
            allowed = f"a start may take {limit:g} s, or what --heartbeat-seconds allows"
        state = self.process.state()
        return f"has shown no progress for {idle:.0f} s: it is {state}, and {allowed}"


@dataclass
class Gang:
    """Workers that are started, killed and started again together: often a single one.

    Those that hold parts of the same update are one gang, since none can go on without the others.
    """

    members: list[Member] = field(default_factory=list)
    updates: bool = False
    """True if it changes parameters: a run lasts as long as such gangs do."""
    most_deaths: int = 10
    incarnation: int = 0
    known: bool = False
    """True if this controller has started or found one of its members."""
    found: bool = False
    """True if an earlier controller started it: then no missing member is started alone."""
    deaths: int = 0
    """Deaths in a row, without progress."""
    progressed: bool = False
    """True if it has shown progress since the controller began."""
    causes: Counter[str] = field(default_factory=Counter)
    start_at: float = 0.0
    _failure: tuple[str, int] = ("", 0)  # the last exception, and how often in a row

    @property
    def restart(self) -> str:
        """The number of the next start, such as "restart 2 of 9 in a row"."""
        failure, times = self._failure
        count, most = (times, _SAME_FAILURES) if failure else (self.deaths, self.most_deaths)
        return f"restart {max(count, 1)} of {most - 1} in a row"

    def died(self, member: Member, why: str, *, counts: bool = True) -> None:
        """Counts the death of a member, after which all are to be started again.

        Args:
            member: The worker that has died.
            why: The cause, to follow the worker's name.
            counts: Whether it could have made progress before.

        Raises:
            UserError: If the user can fix it.
            RunError: If the failure is of a kind that no new start fixes.
            WorkerLost: If starting again does not help.
        """
        failure, age = member.failure, time.monotonic() - member.spawned
        if failure and failure["by_user"]:
            raise UserError(failure["text"])
        if failure and failure.get("final"):
            raise RunError(failure["text"])
        if failure and failure["by_peer"]:
            failure = None
        self.incarnation += 1
        self.found = False
        self.deaths += counts
        self.causes[why] += 1
        summary, times = self._failure
        again = failure and failure["summary"] == summary and age < _FORGIVEN_SECONDS
        times = times + 1 if again else 1
        self._failure = (failure["summary"], times) if failure else ("", 0)
        if failure and times >= _SAME_FAILURES:
            raise WorkerLost(
                f"{member.name} raised the same exception {times} times in a row: {summary}; "
                f"its log is {member.log}"
            )
        if self.deaths >= self.most_deaths:
            raise WorkerLost(
                f"{member.name} died {self.deaths} times in a row without progress: it {why}; "
                f"its log is {member.log}"
            )
        delay = 0.05 * 2**self.deaths if self.deaths > 1 else 0.0
        delay = max(delay, 0.0 if counts else _UNCOUNTED_DELAY_SECONDS)
        self.start_at = time.monotonic() + min(delay, _MOST_DELAY_SECONDS)


def restarts_of(gangs: Sequence[Gang]) -> list[str]:
    """A line for each gang and cause of its restarts."""
    lines = []
    for gang in gangs:
        names = ", ".join(member.name for member in gang.members)
        for why, times in gang.causes.items():
            often = f" ({times} times)" if times > 1 else ""
            lines.append(f"started again: {names}, as it {why}{often}")
    return lines


def peers_of(
    plan: Plan, members: Sequence[Member]
) -> tuple[dict[str, list[dict[str, str]]], dict[str, list[int]]]:
    """The addresses and the incarnations of all workers, by fragment and replica.

    A worker that is absent has no address, and neither has a fragment to which nobody connects.
    """
    peers: dict[str, list[dict[str, str]]] = {name: [] for name in plan.fragments}
    incarnations: dict[str, list[int]] = {name: [] for name in plan.fragments}
    for member in members:
        peers[member.fragment].append(member.addresses or {})
        incarnations[member.fragment].append(member.gang.incarnation)
    return {name: there if any(there) else [] for name, there in peers.items()}, incarnations


def hostless(members: Sequence[Member]) -> str:
    """Counts workers without a host, such as "2 of 8 actors wait for a host"; empty for none."""
    counts = Counter(member.fragment for member in members if member.waits_since)
    if not counts:
        return ""
    all_of = Counter(member.fragment for member in members)
    several = [f"{count:,} of {all_of[name]:,} {name}" for name, count in counts.items()]
    return f"{', '.join(several)} wait for a host"


def stage_of(
    members: Sequence[Member], *, begun: bool, all_that_step: str = ""
) -> tuple[Stage, str, int]:
    """The earliest stage that any worker of a run is in, with how many have passed it.

    Last is the number of updates that the run has made, 0 until its learner has made one.

    Args:
        members: All workers of the run.
        begun: Whether the run has begun.
        all_that_step: Why it begins only with all workers that step; empty if it need not.
    """
    if not begun:
        away, why = hostless(members), f" ({all_that_step} needs them all)" if all_that_step else ""
        wait = f"; {away}{why}" if away else ""
        return Stage.STARTING, _counted(members, lambda m: m.addresses is not None) + wait, 0
    learners = [member for member in members if member.gang.updates]
    compiling = (Stage.STARTING, Stage.COMPILING, Stage.RESETTING)
    if any(member.stage in compiling for member in learners):
        return Stage.COMPILING, _counted(learners, lambda m: m.stage not in compiling), 0
    updates = max((member.updates for member in learners), default=0)
    return Stage.STEPPING, _counted(members, lambda m: m.stage == Stage.STEPPING), updates


def _counted(members: Sequence[Member], passed: Callable[[Member], bool]) -> str:
    """Counts the workers of each fragment that have passed, such as "actors 3 of 8"."""
    fragments = dict.fromkeys(member.fragment for member in members)
    counts = []
    for name in fragments:
        own = [member for member in members if member.fragment == name]
        counts.append(f"{name} {sum(map(passed, own)):,} of {len(own):,}")
    return ", ".join(counts)


def gangs_of(plan: Plan, log: Callable[[str], Path]) -> tuple[list[Gang], list[Member]]:
    """The workers of a plan, in the order of their numbers, and those that belong together."""
    gangs: list[Gang] = []
    members: list[Member] = []
    updaters = any("learn" in fragment.nodes for fragment in plan.fragments.values())
    for name, fragment in plan.fragments.items():
        holds = "learn" in fragment.nodes
        gang, busy = None, BusyTime()
        for replica in range(fragment.replicas):
            if gang is None or not holds:
                updates = holds or not updaters
                deaths = _TRAINER_DEATHS if holds else _OTHER_DEATHS
                gang = Gang(updates=updates, most_deaths=deaths)
                gangs.append(gang)
            number = len(members) + 1
            member = Member(name, replica, number, log(f"{name}-{replica}"), gang, busy)
            gang.members.append(member)
            members.append(member)
    return gangs, members
