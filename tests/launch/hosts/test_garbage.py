"""A controller to which somebody with the run's keys says whatever comes to mind."""

import io
import itertools
import json
import queue
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from srl.config.experiment import load_experiment
from srl.core.optional_packages import installed_version
from srl.launch.controller import Controller
from srl.launch.hosts import remote_hosts
from srl.launch.hosts.messages import SCHEMAS, HostCard, HostMessage, wrapped
from srl.launch.hosts.remote_hosts import RemoteHosts
from srl.record.run_record import read_config
from srl.run.display import Display
from srl.run.folder import create_run
from srl.run.status import read_address
from srl.streams.transport import Identity, Message, Refused, connect
from srl.streams.transport.keys import create_keys
from srl.workers import message_schemas
from srl.workers.control import LIMIT_BYTES, ControlMessage, pack

SECONDS = 60
ENDED = {"number": 99, "incarnation": 0, "code": 1, "how": "", "dump": "", "stack": ""}
FAILED = {"summary": "", "text": "", "by_user": False, "by_peer": False}
REPORT = {
    "env_steps": 1,
    "updates": 1,
    "fps": 1.0,
    "episode_return/a": 1,
    "elo/a": 1,
    "time/a/b": 1,
}
TRUE = {
    HostMessage.HOST: asdict(HostCard("mad", "nothing", 1, installed_version(), "")),
    HostMessage.ENDED: ENDED,
    HostMessage.BEAT: {"states": {"1": "running"}, "accounts": [[1, 0, 0, [1, 1, 0, 0, 0]]]},
    ControlMessage.HELLO: {"addresses": {}, "specs": None},
    ControlMessage.BEAT: {
        "state": "running",
        "idle": 0.1,
        "grown": {"updates": 1},
        "seconds": {"act": 1},
    },
    ControlMessage.REPORT: REPORT,
    ControlMessage.SAY: {"text": "something"},
    ControlMessage.STOPPED: {},
    ControlMessage.FAILED: FAILED,
}
SHAPES = {**SCHEMAS, **message_schemas.SCHEMAS}


class Run:
    """A controller, in a thread, with a host that has the first worker, and a mad one."""

    def __init__(self, folder, stack):
        resolved = load_experiment("native:CartPole-v1", ["--plan", "decoupled"])
        self.run, plan = create_run(resolved, folder), resolved.experiment.settled_plan
        self.keys = create_keys(self.run.path)
        # The hosts of this test do not beat, however long it takes.
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(remote_hosts, "SILENT_SECONDS", 1e6)
        self.hosts = RemoteHosts(self.run, lease_seconds=0.5)
        self.screen = Display(resolved.experiment, Console(file=io.StringIO()))
        self.said, self.report = queue.SimpleQueue(), self.screen.report
        self.stopping, self.tokens = threading.Event(), itertools.count()
        controller = Controller(
            plan,
            self.run,
            self,
            heartbeat_seconds=600.0,
            transport="cluster",
            hosts=self.hosts,
        )
        stack.enter_context(closing(controller))
        thread = threading.Thread(target=controller.run, args=(self.stopping.is_set,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(self.stopping.set)
        self.thread = thread
        self.source = read_config(self.run)["sha256"] or ""
        good = stack.enter_context(self.connect(7))
        self.introduce(good, name="good", workers=((1, 0, 0, True),))
        self.listened_to(good)
        self.mad = stack.enter_context(self.connect(8))
        self.introduce(self.mad)

    def say(self, text):
        self.screen.say(text)
        self.said.put(text)

    def connect(self, sender):
        identity, address = Identity(self.keys.run, sender, 0), read_address(self.run.path)
        return connect(address, identity, limit_bytes=LIMIT_BYTES, keys=self.keys)

    def introduce(self, connection, **card):
        values = {**TRUE[HostMessage.HOST], "source": self.source, **card}
        connection.send(pack(HostMessage.HOST, values))

    def listened_to(self, connection):
        """Waits until the controller has taken all that was said over a connection."""
        token = f"token {next(self.tokens)}"
        connection.send(wrapped(1, 0, pack(ControlMessage.SAY, {"text": token})))
        deadline, told = time.monotonic() + SECONDS, ""
        while told != token:
            assert self.thread.is_alive(), "the controller has ended"
            assert time.monotonic() < deadline
            with suppress(queue.Empty):
                told = self.said.get(timeout=0.2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with ExitStack() as stack:
        yield Run(tmp_path_factory.mktemp("garbage") / "run", stack)


def said(kind, values):
    """What a supervisor sends, for itself or for the first worker."""
    message = pack(kind, values)
    return message if kind in SCHEMAS else wrapped(1, 0, message)


everything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda parts: (
        st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=4), parts, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def spoiled(draw, kind):
    """What is said under a kind, with fields that hold anything."""
    names = st.sampled_from([*TRUE[kind], "extra"])
    return {**TRUE[kind], **draw(st.dictionaries(names, everything, max_size=2))}


anything = st.sampled_from(list(TRUE)).flatmap(
    lambda kind: st.tuples(st.just(kind), everything | spoiled(kind))
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (HostMessage.BEAT, {}),
        (HostMessage.BEAT, {"states": [], "accounts": []}),
        (HostMessage.BEAT, {"states": {}, "accounts": [[1, 0, 1 << 40, [0, 0, 0, 0, 0]]]}),
        (HostMessage.HOST, {**TRUE[HostMessage.HOST], "slots": "x"}),
        (HostMessage.HOST, {}),
        (HostMessage.ENDED, {**ENDED, "number": [1]}),
        (HostMessage.START, {}),
        (ControlMessage.BEAT, {}),
        (ControlMessage.BEAT, {"state": "running", "idle": "long", "grown": {}}),
        (ControlMessage.HELLO, {"addresses": {"parameters": "nowhere"}, "specs": None}),
        (ControlMessage.HELLO, {"addresses": {}, "specs": {"observation": "wide"}}),
        (ControlMessage.REPORT, {**REPORT, "fps": "fast"}),
        (ControlMessage.SAY, {"text": "\ud800"}),
        (ControlMessage.DRAIN, {}),
    ],
)
def test_garbage_is_refused_and_counted_and_logged_with_who_sent_it(run, caplog, kind, values):
    if kind == HostMessage.HOST and "slots" in values:
        values = {**values, "source": run.source}
    before = run.hosts._listener.refused
    message = said(kind, values) if kind != HostMessage.START else pack(kind, values)
    run.mad.send(message)
    run.listened_to(run.mad)
    assert run.hosts._listener.refused == before + 1
    assert "refused from " + ("mad" if message.kind == kind else "actors-0") in caplog.text


def test_words_that_nest_without_end_are_refused(run):
    before = run.hosts._listener.refused
    run.mad.send(Message(HostMessage.BEAT, body=b"[" * 1_000_000))
    run.listened_to(run.mad)
    assert run.hosts._listener.refused == before + 1


@settings(max_examples=50)
@given(messages=st.lists(anything, max_size=12))
def test_a_run_outlives_whatever_is_said(run, messages):
    for kind, values in messages:
        run.mad.send(said(kind, values))
    run.introduce(run.mad)
    run.listened_to(run.mad)


@given(anything)
def test_words_are_as_their_kind_demands_or_refused(message):
    kind, values = message
    try:
        taken = message_schemas.checked_values(pack(kind, values), SHAPES)
        assert json.dumps(taken) == json.dumps(values)
        assert message_schemas.fits(taken, SHAPES[kind])
        if kind == HostMessage.HOST:
            card = HostCard.of(taken)
            assert card.slots >= 0
    except Refused:
        assert json.dumps(values) != json.dumps(TRUE[kind])  # true is no 1


@pytest.mark.parametrize("kind", TRUE)
def test_what_srl_says_is_taken(kind):
    assert message_schemas.checked_values(pack(kind, TRUE[kind]), SHAPES) == json.loads(
        json.dumps(TRUE[kind])
    )
