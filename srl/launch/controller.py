"""Starts the workers of a plan, watches them, starts them again, and ends them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from srl.core.errors import RunError, SrlError, UserError
from srl.dataflow.nodes import ANSWERING
from srl.dataflow.plan import Plan
from srl.launch.beginning import Beginning
from srl.launch.gang import Member, gangs_of, hostless, peers_of, restarts_of, stage_of
from srl.launch.hook_answers import HookAnswers
from srl.launch.hosts.hosts import Found, Hosts, Process, ThisHost, WorkerMessage
from srl.launch.terminal import Terminal
from srl.launch.waiting import WaitingWorkers
from srl.loop.stage import Stage
from srl.record.run_record import RunFolder
from srl.run.hooks import NO_HOOKS, Asking
from srl.run.terminal import PATIENCE_SECONDS
from srl.streams.transport import JOINED, LEFT, Refused, Transport
from srl.system.child_process import crash_place, innermost_frames
from srl.system.supervised import Presence
from srl.workers.control import ControlMessage, pack
from srl.workers.message_schemas import checked_values
from srl.workers.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)

_ROUND_SECONDS = 0.1
_MOST_STARTS = 1000  # in a round, which others wait for
_SHOWN_STACKS = 3  # of thousands of workers
_END_SECONDS = 5.0  # that workers have to end when the learner has
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")


class Controller:
    """Runs a plan's workers until those that update parameters have finished.

    It knows fragments and their nodes, and no algorithm. Workers whose fragment has `learn` form a
    gang with the other replicas: when one dies all are started again, from the last checkpoint.
    Any other worker is started again by itself.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        terminal: Terminal,
        *,
        heartbeat_seconds: float = 60.0,
        resume: bool = False,
        role: str = "",
        transport: Transport = "host",
        hosts: Hosts | None = None,
        hooks: Asking = NO_HOOKS,
        all_that_step: str = "--max-staleness 0",
    ) -> None:
        """Starts nothing yet.

        Args:
            plan: The plan, whose workers are run.
            folder: The run's, from which workers load the experiment.
            terminal: Shows reports and lines of text.
            heartbeat_seconds: That a worker may be silent for, or its main loop take without
                showing progress.
            resume: Whether the run goes on from a checkpoint.
            role: module:function that workers run in place of what their nodes ask for.
            transport: Of the streams between workers.
            hosts: Where workers run; on this machine by default.
            hooks: How to ask the hooks at what learners report.
            all_that_step: Why the run begins only with all workers that step; empty if it begins
                with those that are there.
        """
        self._hosts = hosts or ThisHost(plan)
        self._hooks = HookAnswers(hooks)
        self.begun = False
        """True if all workers have been there and have begun."""
        self.interrupted = False
        """True if the run was asked to stop."""
        self._plan, self._terminal, self._heartbeat_seconds = plan, terminal, heartbeat_seconds
        path, events = str(folder.path), hooks.kinds
        self._spec = partial(WorkerSpec, path, role=role, transport=transport, hooks=events)
        self._resume = resume
        self._gangs, self._members = gangs_of(plan, folder.log)
        self._specs: dict[str, Any] | None = None
        self._peers_changed = False
        self._learners = [member for member in self._members if member.gang.updates]
        self._waiting, self._all_that_step = WaitingWorkers(), all_that_step
        self._beginning = Beginning(plan, self._members, bool(all_that_step))
        self._shown_failures: set[str] = set()
        self._looked = 0.0  # when all workers were last looked at
        self._presence = Presence()
        self._failure: SrlError | None = None  # that the run ends with, after a checkpoint
        self._ending: float | None = None  # when workers that have not ended by then are killed
        self._interrupted_at = 0.0
        self._cut_short = False  # interrupted, and the update in progress is not waited for

    def run(self, stop: Callable[[], bool], patient: Callable[[], bool] = lambda: False) -> None:
        """Runs to the end; leaves no process.

        Args:
            stop: Asked several times a second: whether the run is to stop, after a checkpoint.
            patient: Whether a run that is to stop waits for its update however long that takes.

        Raises:
            UserError: If a worker finds a mistake of the user's.
            WorkerLost: If a worker dies again and again.
        """
        try:
            for member in self._members:
                self._waiting.put(member)
            while not all(member.done for member in self._members):
                self._round(stop, patient)
        finally:
            self._end_all()
        if self._failure is not None:
            raise self._failure

    def stage(self) -> tuple[Stage, str, int]:
        """The stage of those that the first report waits for, how many are, and updates made."""
        if self._failure:
            return Stage.SAVING, "", 0
        return stage_of(self._members, begun=self.begun, all_that_step=self._all_that_step)

    @property
    def trained(self) -> bool:
        """True if there has been an update, so that there may be something to keep."""
        return any(gang.updates and gang.progressed for gang in self._gangs)

    @property
    def _alone(self) -> bool:
        """True if only the learner is to go on, to its last checkpoint."""
        return self._failure is not None or self._cut_short

    def account(self) -> list[str]:
        """The last lines of a run: which workers were started again, and the account of unrolls."""
        ledger = self._hosts.ledger
        lines = restarts_of(self._gangs)
        return [*lines, str(ledger)] if ledger.account().produced else lines

    def close(self) -> None:
        """Lets go of the hosts and of the ledger."""
        self._hosts.close()
        self._hosts.ledger.close()

    # ---- a round ----

    def _round(self, stop: Callable[[], bool], patient: Callable[[], bool]) -> None:
        now = time.monotonic()
        if self._presence.was_stopped():
            for member in self._members:
                member.heard = now
        self._listen(max(0.0, self._looked + _ROUND_SECONDS - now))
        now = time.monotonic()
        if now < self._looked + _ROUND_SECONDS:
            return  # of thousands of workers not each message is a reason to look at them all
        self._looked = now
        self._start_waiting(now)
        for member in self._members:
            if member.process is not None:
                self._look_after(member, member.process, now)
        if stop() and not self.interrupted:
            self.interrupted, self._interrupted_at = True, now
            if not self.begun:  # there is nothing to finish
                self._ending = 0.0
        if self.interrupted and now > self._interrupted_at + PATIENCE_SECONDS and not patient():
            self._cut_short_if_overdue()
        self._drain()
        if self._peers_changed:
            self._peers_changed = False
            # One that was found reports its addresses soon; until then it knows enough.
            known = [m for m in self._members if m.started is not None and m.addresses is not None]
            self._begin_or_update(ControlMessage.PEERS, known)
        self._start_ready()

    def _listen(self, timeout: float) -> None:
        """Takes all messages there are; waits for the first."""
        received = self._hosts.receive(timeout)
        while True:
            for found in self._hosts.found():
                self._adopt(found)
            if received is None:
                return
            self._take(received)
            received = self._hosts.receive(0)

    def _adopt(self, found: Found) -> None:
        """Goes on with a process that another controller has started, unless it is out of date."""
        number, incarnation, process, begun = found
        member = self._members[number - 1] if 1 <= number <= len(self._members) else None
        if member is None or member.done:
            return process.kill()
        gang = member.gang
        if gang.known and incarnation > gang.incarnation:  # what was found first is out of date
            for other in gang.members:
                if other.process is not None:
                    other.process.kill()
                other.forget()
        elif member.process is not None or (gang.known and incarnation < gang.incarnation):
            return process.kill()
        member.process, gang.incarnation = process, incarnation
        gang.known = gang.found = True
        member.spawned = member.heard = time.monotonic()
        member.waits_since = 0.0
        if begun:
            member.started = member.heard
            self.begun = True
        logger.info("found %s", member.name)

    def _take(self, received: WorkerMessage) -> None:
        number, incarnation, message = received
        member = self._members[number - 1] if 1 <= number <= len(self._members) else None
        if member is None or incarnation != member.gang.incarnation:
            return  # a late message of one that was started again since
        member.heard = time.monotonic()
        if message.kind in (JOINED, LEFT):
            member.connected = message.kind == JOINED
            member.sent_peers, self._peers_changed = None, True  # what it missed is sent again
            return
        try:
            self._take_message(member, message.kind, checked_values(message))
        except Refused as error:
            self._hosts.refuse(member.name, error)

    def _take_message(self, member: Member, kind: int, values: dict[str, Any]) -> None:
        if kind == ControlMessage.BEAT:
            member.take_beat(values)
            if member.gang.updates and member.replica == 0:  # it writes the reports
                seconds = {m.fragment: m.busy.take() for m in self._members if m.replica == 0}
                self._hosts.send(member.number, pack(ControlMessage.SECONDS, seconds))
        elif kind == ControlMessage.HELLO:
            self._register(member, values["addresses"], values["specs"])
        elif kind == ControlMessage.REPORT:
            self._terminal.report(values)
        elif kind == ControlMessage.EVENT:
            for other in member.gang.members:
                self._hosts.send(other.number, self._hooks.to(member.gang.incarnation, values))
        elif kind == ControlMessage.SAY:
            self._terminal.say(values["text"])
        elif kind == ControlMessage.STOPPED:
            member.stopped = True
        elif kind == ControlMessage.FAILED:
            member.failure = values

    def _register(self, member: Member, addresses: dict[str, str], specs: Any) -> None:
        if specs is not None and self._specs is not None and specs != self._specs:
            raise UserError(
                f"{member.name} made other environments than the workers before it; all must have "
                "the same spaces and agents"
            )
        self._specs = self._specs or specs
        member.addresses = addresses
        self._peers_changed = True
        seconds = time.monotonic() - member.spawned
        logger.info("%s registered %.2f s after its start", member.name, seconds)

    # ---- the life of one worker ----

    def _spawn(self, member: Member) -> None:
        gang = member.gang
        incarnation = max(gang.incarnation, 0 if gang.known else self._hosts.first_incarnation)
        place = member.fragment, member.replica, member.number, incarnation
        spec = self._spec(*place, resume=self._resume or incarnation > 0)
        try:
            member.process = self._hosts.start(spec, member.log, accounts=member.gang.updates)
        except OSError as error:  # a full disk, or no more processes
            return self._give_up(member, RunError(f"cannot start {member.name}: {error}"))
        if member.process is None:  # its host has just gone
            return self._waiting.put(member)
        gang.known, gang.incarnation = True, incarnation
        member.spawned = member.heard = time.monotonic()
        logger.info("started %s", member.name)

    def _start_waiting(self, now: float) -> None:
        """Starts the workers whose turn has come, and reports those that wait long for a host."""
        if self._hosts.settled:  # until then the rest may be somewhere, in the same incarnation
            for member in self._learners:
                if member.gang.found and member.process is None and not member.done:
                    self._restart(member, "was not found with the others of its gang")
        for member in self._waiting.take(now, _MOST_STARTS, self._hosts.has_room):
            self._spawn(member)
        for line in self._waiting.unreported(now):
            self._announce(line)

    def _look_after(self, member: Member, process: Process, now: float) -> None:
        """Notices that a worker has ended, or ends one that hangs."""
        if process.ended:
            self._listen(0)  # its last messages, and those of hosts, which may replace it
            if member.process is process:
                self._handle_exit(member)
        elif not member.killed and (trouble := member.trouble(now, self._heartbeat_seconds)):
            stack = "" if process.state().startswith("stopped") else process.stack()
            self._announce(f"{member.name} {trouble}; it is killed", stack)
            member.killed = trouble.partition(" for ")[0]
            process.kill()

    def _handle_exit(self, member: Member) -> None:
        assert member.process is not None
        code, how, dump = member.process.reap()
        member.process = None
        failure, why = member.failure, member.killed or how
        saving = self.interrupted or self._failure is not None
        leaving = self._ending is not None or (saving and member.gang.updates)
        finished = member.stopped and code == 0
        if failure:
            why = "lost a peer" if failure["by_peer"] else f"raised {failure['summary']}"
        if finished and (leaving or member.gang.updates):
            member.done = True
        elif self._ending is not None or (self._alone and not member.gang.updates):
            member.done = True
            logger.info("%s %s at the end", member.name, why)
        else:
            if failure and not any(failure.get(k) for k in ("by_user", "by_peer", "final")):
                self._log_failure(member.name, failure["text"].rstrip())
            elif any(name in how for name in _CRASHES):
                logger.info("%s %s:\n%s", member.name, how, dump)
                self._log_failure(member.name, crash_place(dump))
            if leaving:
                self._abandon(member, why)
            else:
                self._restart(member, f"{why} without being asked" if finished else why)

    def _log_failure(self, name: str, text: str) -> None:
        """Logs a worker's failure; the terminal shows it unless a worker failed alike before."""
        alike = re.sub(r"0x[0-9a-f]+|\d+", "", text)  # in another process, another environment
        level = logging.INFO if alike in self._shown_failures else logging.ERROR
        logger.log(level, "%s failed:\n%s", name, text)
        self._shown_failures.add(alike)

    def _abandon(self, member: Member, why: str) -> None:
        """Gives up a gang that was to finish its work and cannot."""
        self._announce(f"{member.name} {why} while it was stopping; its log is {member.log}")
        for other in member.gang.members:
            if other.process is not None and other is not member and not other.stopped:
                other.killed = "was killed with its gang"
                other.process.kill()
        member.done = True

    def _restart(self, member: Member, why: str) -> None:
        gang = member.gang
        try:
            gang.died(member, why, counts=self._could_progress(member))
        except SrlError as error:
            return self._give_up(member, error)
        others = [other for other in gang.members if other is not member]
        for other in others:
            if other.process is not None:
                other.process.kill()
                other.process.reap()
            other.forget()
            other.done = False
        member.forget()
        for other in gang.members:
            self._waiting.put(other)
        together = f", and with it {', '.join(o.name for o in others)}" if others else ""
        self._announce(f"{member.name} {why}; it is started again{together} ({gang.restart})")
        self._peers_changed = True

    def _could_progress(self, member: Member) -> bool:
        """Tells if those that a worker waits for were ready.

        Workers that step wait for those that act, teach and learn, those that act for those that
        learn, and others for none: the deaths of one that keeps others from being ready count.
        """
        own = self._plan.fragments[member.fragment].nodes
        if "learn" in own or not self.begun:
            return True
        awaited = ("learn", *ANSWERING) if "step" in own else ("learn",) * ("act" in own)
        homes = {self._plan.home(node) for node in awaited} - {member.fragment}
        return homes <= {other.fragment for other in self._members if other.ready}

    def _give_up(self, member: Member, error: SrlError) -> None:
        """Ends the run because of a worker: after a checkpoint, if the learner can make one.

        Raises:
            SrlError: The error itself, if it cannot. Several learners cannot agree on an end
                without an update that needs all workers.
        """
        learners = self._learners
        runs = len(learners) == 1 and learners[0].beat.get("state") in ("running", "draining")
        if member in learners or not runs or learners[0].process is None or learners[0].killed:
            raise error
        self._failure = error
        self._announce(f"{member.name} is given up; the run ends after a checkpoint")
        member.done = True
        for other in self._members:  # a learner does not wait for an update without them
            if other.process is not None and not other.gang.updates:
                other.killed = "was killed as the run ends"
                other.process.kill()

    # ---- the beginning and the end ----

    def _start_ready(self) -> None:
        """Starts those whose peers are there: at first a whole run, later those that come."""
        waiting = [m for m in self._members if m.addresses is not None and m.started is None]
        if not waiting or not (
            all(map(_there, self._learners)) if self.begun else self._beginning.complete()
        ):
            return
        beginning = [m for m in waiting if all(map(_there, m.gang.members))]
        now = time.monotonic()
        for member in beginning:
            member.started = now
        if beginning:
            self._begin_or_update(ControlMessage.START, beginning)
        if not self.begun:
            self.begun = True
            self._hosts.note_begun()
            if away := hostless(self._members):
                self._announce(f"the run begins; {away}: they take part when they have one")

    def _begin_or_update(self, kind: ControlMessage, members: list[Member]) -> None:
        """Sends to workers what they need of the others, and no more: there may be thousands."""
        served, incarnations = peers_of(self._plan, self._members)
        self._hosts.note_addresses(served)
        connects = {"peers": served, "incarnations": {}, "specs": self._specs}
        for_those = {False: connects, True: {**connects, "incarnations": incarnations}}
        messages = {listens: pack(kind, values) for listens, values in for_those.items()}
        for member in members:
            message = messages[bool(member.addresses)]
            if kind == ControlMessage.START or member.sent_peers != message.body:
                self._hosts.send(member.number, message)
            member.sent_peers = message.body

    def _drain(self) -> None:
        """Asks workers to end: first those that update, which need the others until then."""
        if self._ending is None and all(member.done for member in self._learners):
            self._ending = time.monotonic() + _END_SECONDS
        asked = self._learners if self.interrupted or self._failure is not None else []
        if self._ending is not None:
            asked = self._members
        for member in asked:
            if member.process is None:
                member.done = True
            elif member.connected and not member.drained:
                member.drained = True
                self._hosts.send(member.number, pack(ControlMessage.DRAIN, {}))
        if self._ending is not None and time.monotonic() > self._ending:
            self._kill(self._members)

    def _cut_short_if_overdue(self) -> None:
        """Ends what the last update needs, if a worker shows no progress towards it.

        A learner then ends without that update, and keeps the state before it. Several learners
        cannot agree on such an end, and one that is overdue itself cannot keep anything.
        """
        overdue = [m for m in self._members if m.process is not None and m.overdue]
        if not overdue or self._cut_short or self._ending is not None:
            return
        self._cut_short = True
        for member in overdue[:_SHOWN_STACKS]:
            stack = member.process.stack() if member.process and not member.compiles else ""
            self._announce(f"{member.name} {member.delay}", stack)
        names = ", ".join(member.name for member in overdue[:_SHOWN_STACKS])
        self._announce(f"the update in progress is not waited for, because of {names}")
        self._kill([m for m in self._members if not m.gang.updates or len(m.gang.members) > 1])
        self._kill(overdue)

    def _kill(self, members: list[Member]) -> None:
        for member in members:
            if member.process is not None and not member.killed:
                member.killed = "did not end by itself"
                member.process.kill()

    def _end_all(self) -> None:
        for member in self._members:
            if member.process is not None:
                member.process.kill()
        for member in self._members:
            if member.process is not None:
                member.process.reap()
                member.process = None

    # ---- messages to the user ----

    def _announce(self, text: str, stack: str = "") -> None:
        """Shows a line, and where an environment was; the log gets the stacks of all threads."""
        logger.info("%s", f"{text}\n{stack}".rstrip())
        self._terminal.say(f"{text}\n{innermost_frames(stack)}".rstrip())


def _there(member: Member) -> bool:
    """Tells if a worker has registered, or is not needed any more."""
    return member.addresses is not None or member.done
