"""Ends of streams, each with what a process that has the keys may say to it."""

from contextlib import suppress
from dataclasses import replace
from threading import Event

import numpy as np
from messages import LIMIT, RUN, VECTOR, a_message

from srl.algorithms import PPO
from srl.config.experiment import Experiment
from srl.core.errors import RunError
from srl.core.tree import map_tree
from srl.core.types import Timestep
from srl.dataflow.plans import decoupled, serving
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.parameters import Published
from srl.loop.acting.policy_server import PolicyServer, inference_layout
from srl.loop.binding import batch_specs
from srl.loop.learning.learner import Learner
from srl.loop.wiring import Endpoints
from srl.networks import MLP
from srl.streams import inference, parameters, sample
from srl.streams.group_state import pack
from srl.streams.inference import RemoteActing
from srl.streams.layout import Layout
from srl.streams.parameter_memory import NONE_YET
from srl.streams.parameters import Publisher, Subscriber
from srl.streams.sample import SampleSource
from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import StalenessLimiter
from srl.streams.transport import Connection, Disconnected
from srl.streams.transport.message import Identity, Message
from srl.streams.transport.thread import ThreadConnection, ThreadListener

SENDERS = [0, 1, 2, 1 << 31, (1 << 32) - 1]
EXPERIMENT = Experiment(
    name="fuzzed",
    env="native:CartPole-v1",
    num_envs=2,
    algorithm=PPO(network=MLP(width=4, memory=2), unroll_length=4, chunk=2, minibatches=1),
    env_steps=1,
)
SPECS, TIMESTEP = first_timestep(EXPERIMENT, 1)
LEARNER = Learner(EXPERIMENT, SPECS)
FORMS = batch_specs(EXPERIMENT, LEARNER.policy_set, 1)
FORM = FORMS[0]
UNROLL = map_tree(lambda form: np.zeros(form.shape, form.dtype), FORM)
STATE = {
    "pool": np.zeros(5, np.uint8),
    "timestep": map_tree(lambda x: x[0], UNROLL.timesteps)._asdict(),
    "memory": map_tree(lambda x: x[0], UNROLL.memory),
    "clock": np.array(3, np.int64),
}


def packed(tree):
    return bytes(Layout.of(tree).pack(tree))


def packed_tree(tree):
    return bytes(pack(tree))


AREA = inference_layout(LEARNER.policy_set, 1, {"observation"}, {"action", "log_prob", "memory"})
REPLY = AREA.views(np.zeros(AREA.size, np.uint8))["reply"]
# What messages bring, by kind:
SAMPLES = {
    sample.SampleMessage.HANDSHAKE: Layout.of(tuple(FORMS)).to_json(),
    sample.SampleMessage.RESTORE: packed_tree(STATE),
    sample.SampleMessage.DELIVER: packed(UNROLL),
    sample.SampleMessage.STATE: packed_tree(STATE),
}
INFERENCE = {
    inference.InferenceMessage.HANDSHAKE: AREA.to_json(),
    inference.InferenceMessage.RESTORE: packed_tree(STATE),
    inference.InferenceMessage.REPLY: packed(REPLY),
    inference.InferenceMessage.STATE: packed_tree(STATE),
}
PARAMETERS = {
    parameters.ParameterMessage.HANDSHAKE: Layout.of(VECTOR).to_json(),
    parameters.ParameterMessage.NEWER: packed(VECTOR),
}


class Beyond(ThreadListener):
    """As one for other hosts, whose peers send what others write into shared memory."""

    shares_memory = False


def beyond():
    return Beyond(Identity(RUN, 9, 0), LIMIT)


class Listening:
    """An end that listens. After any talk nobody is there, and nothing is held."""

    def __init__(self, fields, bodies):
        self.fields, self.bodies, self.listener = fields, bodies, beyond()

    def talk(self, data):
        connections = {}
        for _ in range(data.ConsumeIntInRange(1, 6)):
            sender = data.PickValueInList(SENDERS)
            try:
                if sender not in connections:
                    connections[sender] = ThreadConnection(
                        self.listener.address, Identity(RUN, sender, 0), LIMIT
                    )
                connections[sender].send(a_message(data, self.fields, self.bodies))
            except Disconnected:
                del connections[sender]
            self.hear()
        for connection in connections.values():
            connection.close()
        self.hear()
        self.check()

    def read(self, hear):
        while (received := self.listener.receive(0)) is not None:
            hear(*received)


class Samples(Listening):
    def __init__(self):
        self.listener = beyond()
        super().__init__(sample.FIELDS, SAMPLES)
        self.sink = SampleSink(self.listener, StalenessLimiter(2), FORMS)

    def hear(self):
        with self.sink._changed:  # as its thread does, which is not begun
            self.read(self.sink._hear)
            self.sink._grant()
        if self.sink.limiter.complete(self.sink.limiter.batch_of(0)):
            self.sink.ask_states()
            self.sink.learned()

    def check(self):
        self.sink._check()
        assert not self.sink._joined
        assert not self.sink.limiter._holders


class Parameters(Listening):
    """Heard by a thread, which answers whoever asks for the version after all that was said."""

    def __init__(self):
        super().__init__(parameters.FIELDS, PARAMETERS)
        self.publisher = Publisher(self.listener, Layout.of(VECTOR))
        self.publisher.publish((0, 5), VECTOR)

    def hear(self):
        """Nothing: its thread does."""

    def check(self):
        with ThreadConnection(self.listener.address, Identity(RUN, 77, 0), LIMIT) as connection:
            assert parameters.published_version(connection, self.alive) == (0, 5)

    def alive(self):
        assert self.publisher._failure is None


class Policies(Listening):
    """Acts for groups; collects their unrolls, too, if it has a sink."""

    def __init__(self, sink, plan):
        policies = replace(plan.fragments["policies"], batch=2, deadline=0.0)
        plan = replace(plan, fragments={**plan.fragments, "policies": policies})
        experiment = replace(EXPERIMENT, plan=plan, groups=2)
        at = Endpoints(experiment, "policies", 0, Identity(RUN, 0, 0), dict, Event(), "thread")
        stream = at.served["inference"]
        names = ({field.name for field in part} for part in (stream.request, stream.reply))
        layout = inference_layout(LEARNER.policy_set, 1, *names)
        asked = layout.views(np.zeros(layout.size, np.uint8))["request"]
        super().__init__(
            inference.FIELDS, {**INFERENCE, inference.InferenceMessage.REQUEST: packed(asked)}
        )
        self.sink, source = sink, Published(LEARNER.policies, None)
        source.publish(np.array((0, 0), np.int32), LEARNER.policies)
        self.server = PolicyServer(at, LEARNER.policy_set, source, self.listener, sink)

    def hear(self):
        self.server._receive(0)
        if due := self.server._due():
            self.server._answer(due)
        if self.sink is not None and self.sink.limiter.complete(self.sink.limiter.batch_of(0)):
            self.sink.ask_states()
            self.sink.learned()

    def check(self):
        assert not self.server._sessions
        assert not self.server._waiting
        assert not self.server._early


class Script(Connection):
    """Says what was written before, whatever it hears, and has gone then."""

    def __init__(self, messages):
        super().__init__("script", Identity(RUN, 1, 0), LIMIT)
        self.messages = messages

    def send(self, message):
        pass

    def _receive(self, timeout):
        if not self.messages:
            raise Disconnected("it has closed")
        return self.identity, self.messages.pop()

    def fileno(self):
        raise NotImplementedError

    def close(self):
        pass


def answers(data, fields, bodies, first):
    """Some messages, of which the first is likely to be what the far end waits for."""
    messages = [a_message(data, fields, bodies) for _ in range(data.ConsumeIntInRange(0, 4))]
    return [*messages, first] if data.ConsumeBool() else messages


def connecting(data, fields, bodies, first, use):
    """Lets one that connects hear anything: it reads it, or says what is wrong."""
    scripts = [Script(answers(data, fields, bodies, first))]

    def connect():
        if not scripts:
            raise Disconnected("nobody is there")
        return scripts.pop()

    with suppress(RunError):
        use(connect)


def read_tickets(data):
    form = Message(
        sample.SampleMessage.HANDSHAKE,
        counts=(1, 2, 0, 0, 0),
        body=Layout.of(tuple(FORMS)).to_json(),
    )

    def use(connect):
        source = SampleSource(connect())
        while True:
            source.take(0.0)
            if source.wants_state:
                source.give_state(STATE)

    connecting(data, sample.FIELDS, SAMPLES, form, use)


def read_replies(data):
    form = Message(inference.InferenceMessage.HANDSHAKE, counts=(0, 0, 0), body=AREA.to_json())
    timestep = Timestep(*map_tree(lambda x: x[0], UNROLL.timesteps))

    def use(connect):
        acting = RemoteActing(connect, lambda: STATE)
        acting.begin((0, 0))
        while True:
            acting.decide(timestep, STATE["memory"], 0)

    connecting(data, inference.FIELDS, INFERENCE, form, use)


def read_parameters(data):
    form = Message(parameters.ParameterMessage.HANDSHAKE, body=Layout.of(VECTOR).to_json())

    def use(connect):
        subscriber = Subscriber(connect)
        while True:
            subscriber.ask_published()
            subscriber.newest(NONE_YET, 0)

    connecting(data, parameters.FIELDS, PARAMETERS, form, use)


def readers():
    """Each takes fuzzed data."""
    collecting = SampleSink(beyond(), StalenessLimiter(2), FORMS)
    ends = [
        Samples(),
        Parameters(),
        Policies(None, decoupled(actors=1)),
        Policies(collecting, serving(actors=1)),
    ]
    return [end.talk for end in ends] + [read_tickets, read_replies, read_parameters]
