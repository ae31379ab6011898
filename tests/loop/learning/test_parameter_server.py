"""Workers that give sums of gradients, and the server that updates with them."""

import os
import signal
import threading
import time
from dataclasses import replace

import jax
import numpy as np
import pytest
from small_runs import assert_same
from watching import account

from srl.algorithms import DQN, PPO
from srl.checkpoint import Checkpoints
from srl.dataflow import plans
from srl.experiment import Experiment, load_experiment
from srl.launch.controller import Controller
from srl.loop.learning.gradient_contributor import Contributor
from srl.loop.learning.parameter_server import Server
from srl.loop.learning.unroll_ledger import Ledger
from srl.loop.training import local_training
from srl.loop.wiring import Endpoints
from srl.networks import MLP
from srl.run.folder import create_run
from srl.streams import Identity, listen
from srl.streams.group_state import STATE_BYTES, Stopped

SECONDS = 120
EXPERIMENT = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=8,
    groups=2,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=2, minibatches=4),
    updates=100,
)


class Died(Exception):
    pass


class Mortal(Contributor):
    """Dies when it gets the state of an update's phase."""

    def __init__(self, endpoints, last, checkpoints):
        super().__init__(endpoints, checkpoints)
        self.last = last

    def _next_request(self):
        request = super()._next_request()
        if (request.update[-1], request.phase) == self.last:
            self._source.close()
            raise Died
        return request


class Together:
    """A server in this thread, and its workers in others; one that dies is followed by another."""

    def __init__(
        self, transport="thread", saved=None, last=None, experiment=EXPERIMENT, checkpoints=None
    ):
        self.experiment = replace(experiment, plan=plans.parameter_server(2))
        self.checkpoints = checkpoints
        self.transport, self.stopping = transport, threading.Event()
        self.addresses, self.errors = {}, []
        self.listener = listen(transport, Identity(1, 0, 0), limit_bytes=STATE_BYTES)
        self.addresses["server"] = [{"gradients": self.listener.address}]
        self.ledger = Ledger.create()
        self.contributors = [
            Mortal(self.endpoints("actors", i), last if i else None, checkpoints) for i in (0, 1)
        ]
        specs = self.contributors[0].make()
        server = Server(self.endpoints("server", 0), self.listener, specs, self.ledger)
        self.server = server.training()
        self.threads = [
            threading.Thread(target=self.work, args=(worker,)) for worker in self.contributors
        ]
        self.server.start()
        if saved is not None:
            self.server.restore(saved)
        for thread in self.threads:
            thread.start()

    def endpoints(self, fragment, replica):
        identity = Identity(1, replica + 1, 0)
        return Endpoints(
            self.experiment,
            fragment,
            replica,
            identity,
            lambda: self.addresses,
            self.stopping,
            self.transport,
        )

    def work(self, contributor):
        try:
            training = contributor.training()
            training.start()
            while training.update():
                pass
        except Stopped:
            pass
        except Died:
            follower = Contributor(contributor._endpoints, self.checkpoints)
            self.contributors.append(follower)
            self.work(follower)
        except BaseException as error:
            self.errors.append(error)
            self.stopping.set()

    def train(self, updates):
        for _ in range(updates):
            self.server.update()
        assert not self.errors
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.finish()
        self.stopping.set()
        for thread in self.threads:
            thread.join(SECONDS)
        self.server.close()
        self.ledger.close()
        for contributor in self.contributors:
            contributor._source.close()
            contributor.close()


def numbers(state):
    leaves = [np.ravel(x) for x in jax.tree.leaves(state["learners"])]
    return np.concatenate(leaves).astype(np.float64)


def report(training):
    report = training.report()
    return {k: v for k, v in report.items() if k != "fps" and not k.startswith("time/")}


@pytest.fixture(scope="module")
def plain():
    """The plain loop's state and report after three updates."""
    trainer = local_training(replace(EXPERIMENT, plan=plans.replicated(1)))
    trainer.start()
    for _ in range(3):
        trainer.update()
    found = trainer.state(), report(trainer)
    trainer.close()
    return found


@pytest.fixture(scope="module")
def trained():
    """The same of a server and two workers."""
    with Together().train(3) as together:
        account = str(together.ledger)
        return together.server.state(), report(together.server), account


def test_a_server_and_its_workers_train_as_the_plain_loop_does(plain, trained):
    a, b = numbers(plain[0]), numbers(trained[0])
    assert np.linalg.norm(a - b) / np.linalg.norm(a) < 1e-5


def test_it_reports_what_the_plain_loop_reports(plain, trained):
    own = {name for name in trained[1] if name.startswith("unrolls/")}
    assert plain[1].keys() == trained[1].keys() - own
    for name in plain[1].keys() - {"bottleneck"}:
        value = plain[1][name]
        assert trained[1][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_it_accounts_for_all_unrolls(trained):
    assert trained[2] == ("unrolls: 6 produced = 6 learned + 0 in flight + 0 lost + 0 rolled back")


@pytest.mark.parametrize("transport", ["host", "network"])
def test_two_runs_are_bitwise_the_same_through_whatever_they_are_connected(trained, transport):
    with Together(transport).train(3) as again:
        state = again.server.state()
    assert np.array_equal(numbers(trained[0]), numbers(state))
    assert np.array_equal(trained[0]["environments"], state["environments"])


def test_a_saved_run_goes_on_bitwise(trained):
    with Together(saved=trained[0]).train(2) as resumed:
        state = resumed.server.state()
    with Together().train(5) as whole:
        expected = whole.server.state()
    assert np.array_equal(numbers(state), numbers(expected))


def test_an_update_that_lost_a_worker_in_its_middle_is_as_if_it_had_never_begun(trained):
    with Together(last=(1, 0)).train(3) as early:
        expected, account = early.server.state(), str(early.ledger)
    with Together(last=(1, 5)).train(3) as late:
        state = late.server.state()
        assert str(late.ledger) == account
    assert account == "unrolls: 7 produced = 6 learned + 0 in flight + 1 lost + 0 rolled back"
    assert np.array_equal(numbers(state), numbers(expected))
    assert np.array_equal(state["environments"], expected["environments"])
    assert not np.array_equal(numbers(state), numbers(trained[0]))


def test_what_workers_remember_is_saved_and_a_run_goes_on_with_it(tmp_path):
    settings = {"unroll_length": 4, "batch_size": 16, "warm_up": 64, "replay": 5 * 32}
    algorithm = DQN(network=MLP(width=8), samples_per_insert=1.0, priorities=0.6, **settings)
    experiment = replace(EXPERIMENT, algorithm=algorithm)
    checkpoints = Checkpoints(tmp_path)
    with Together(experiment=experiment, checkpoints=checkpoints).train(3) as whole:
        whole.server.save_replays(checkpoints.replay_folder)
        whole.train(4)
        state = whole.server.state()
        files = whole.server.save_replays(checkpoints.replay_folder)
        checkpoints.save(7, state, {}, replay_files=files, wait=True)
        expected = whole.train(3).server.state()
        remembered = [contributor._replays for contributor in whole.contributors]
    assert set(files) == {
        f"{blocks}.{part}of2.safetensors" for blocks in ("0-3", "3-7") for part in (0, 1)
    }
    tree, _ = checkpoints.restore(7, like=state)
    with Together(saved=tree, experiment=experiment, checkpoints=checkpoints).train(3) as resumed:
        assert np.array_equal(numbers(resumed.server.state()), numbers(expected))
        for contributor, replays in zip(resumed.contributors, remembered, strict=True):
            assert_same(contributor._replays, replays)
    checkpoints.close()


def test_the_time_of_workers_is_told(trained):
    with Together().train(2) as together:
        shares = {k for k in together.server.report() if k.startswith("time/")}
        assert {"time/server/sums wait", "time/server/update"} <= shares
        for contributor in together.contributors:
            seconds = contributor._endpoints.busy.take()
            assert {"step", "gradient", "server wait", "idle"} <= seconds.keys()


# ---- processes ----

FILE = """
from srl import Experiment
from srl.algorithms import PPO
from srl.dataflow import plans
from srl.networks import MLP

experiment = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=16, minibatches=4),
    plan=plans.parameter_server(2),
    updates=100_000,
    report_every=1,
    checkpoint_minutes=0.001,
)
"""


class Faults:
    """A run in which a worker is killed, and its server while that worker begins anew."""

    def __init__(self, folder):
        self.lines, self.updates, self.killed = [], 0, 0
        (folder / "cartpole.py").write_text(FILE)
        resolved = load_experiment(str(folder / "cartpole.py"), [])
        self.folder = create_run(resolved, folder / "run")
        self.plan = resolved.experiment.plan
        self.controller = Controller(self.plan, self.folder, self)

    def say(self, text):
        self.lines.append(text)

    def report(self, metrics):
        self.updates = metrics["updates"]

    def run(self):
        deadline = time.monotonic() + SECONDS
        self.controller.run(lambda: self.look(deadline))
        self.account = self.controller.account()
        self.controller.close()

    def look(self, deadline):
        assert time.monotonic() < deadline, self.lines
        if self.killed == 0 and self.updates >= 4:
            self.kill("actors-1")
        elif self.killed == 1 and self.lines:
            self.kill("server-0")
        return self.killed == 2 and self.updates >= self.killed_at + 4

    def kill(self, name):
        member = next(m for m in self.controller._members if m.name == name)
        os.kill(member.process.pid, signal.SIGKILL)
        self.killed, self.killed_at = self.killed + 1, self.updates


def test_a_killed_worker_and_a_killed_server_leave_an_exact_account(tmp_path):
    faults = Faults(tmp_path)
    faults.run()
    told = "\n".join(faults.lines)
    assert "actors-1 was killed by SIGKILL; it is started again (restart 1 of 9 in a row)" in told
    assert "server-0 was killed by SIGKILL; it is started again" in told
    assert len(faults.account) == 3, faults.account
    produced, learned, in_flight, lost, rolled_back = account(faults.account[-1])
    assert produced == learned + in_flight + lost + rolled_back
    assert learned == 2 * Checkpoints(faults.folder.checkpoints).latest()
    assert in_flight == 0
    # One of each worker at each death at most; none where it dies between two unrolls.
    assert lost <= 4
