"""What runs tell of their time and of their unrolls."""

import re
import time
from collections import defaultdict
from contextlib import closing

import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.launch.controller import Controller
from srl.run.folder import create_run
from srl.run.metrics import read_metrics

SECONDS = 120
SMALL = (
    "--num-envs 8 --algorithm.unroll-length 16 --algorithm.epochs 2 "
    "--algorithm.network.mlp.width 16 --report-every 4"
)
ARGUMENTS = f"{SMALL} --updates 12"
KINDS = {
    "threads": {"learner": "learn", "actors": "unroll"},
    "central": {"learner": "learn", "actors": "inference wait", "acting": "act"},
    "decoupled": {"learner": "learn", "actors": "inference wait", "policies": "act"},
}


def _param(name):
    return name if name in ("threads", "decoupled") else pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[_param(name) for name in KINDS])
def run(request, tmp_path_factory):
    """The plan's name, and the lines of its metrics."""
    path = tmp_path_factory.mktemp(request.param) / "run"
    if request.param == "threads":
        words = ["run", "native:CartPole-v1", "--plan", "threads", "--run-dir", str(path)]
        assert main([*words, *ARGUMENTS.split()]) == 0
    else:
        train_until_all_report(request.param, path)
    return request.param, read_metrics(path)


def train_until_all_report(name, path):
    """Trains in processes, until a report has the shares of each kind of worker."""
    words = ["--plan", name, *SMALL.split(), "--updates", "1000000"]
    words += ["--plan.actors.replicas", "2"]
    resolved = load_experiment("native:CartPole-v1", words)
    folder, terminal = create_run(resolved, path), Terminal()
    plan, begun = resolved.experiment.settled_plan, time.monotonic()

    def stop():
        assert time.monotonic() < begun + SECONDS, terminal.newest
        shares = shares_of(terminal.newest)
        return all(shares[kind].get(act, 0.0) > 0.001 for kind, act in KINDS[name].items())

    with closing(Controller(plan, folder, terminal)) as controller:
        controller.run(stop)


class Terminal:
    """Keeps the last report."""

    def __init__(self):
        self.newest = {}

    def say(self, text):
        pass

    def report(self, metrics):
        self.newest = metrics


def shares_of(line):
    """The shares of a report, by kind of worker and activity."""
    shares = defaultdict(dict)
    for key, share in line.items():
        if key.startswith("time/"):
            _, kind, activity = key.split("/")
            shares[kind][activity] = share
    return shares


def test_every_kind_of_worker_tells_what_all_of_its_time_goes_to(run):
    name, lines = run
    for own in (own for line in lines for own in shares_of(line).values()):
        assert sum(own.values()) == pytest.approx(1)
        assert min(own.values()) >= 0
    assert shares_of(lines[-1]).keys() == KINDS[name].keys()
    for kind, activity in KINDS[name].items():
        assert max(line.get(f"time/{kind}/{activity}", 0.0) for line in lines) > 0.001


def test_an_activity_that_was_reported_is_in_every_later_line(run):
    known = set()
    for line in run[1]:
        activities = {key for key in line if key.startswith("time/")}
        assert known <= activities
        known = activities


def test_a_report_says_what_holds_the_run_back_once_actors_have_reported(run):
    _, lines = run
    reported = [line for line in lines if "time/actors/step" in line]
    assert reported
    for line in reported:
        bound, wait = line["bottleneck"].split(": ")
        assert bound in ("learner-bound", "actor-bound", "inference-bound", "no bottleneck")
        assert "wait" in wait


def test_a_report_accounts_for_every_unroll(run):
    _, lines = run
    for line in lines:
        told = {key[8:]: count for key, count in line.items() if key.startswith("unrolls/")}
        produced = told.pop("produced")
        assert produced == sum(told.values()) > 0
        assert (told["lost"], told["rolled_back"]) == (0, 0)
        assert (line["staleness_mean"], line["staleness_max"]) == (0, 0)


def test_a_report_counts_the_unrolls_of_its_own_update_as_learned(run):
    _, lines = run
    groups = lines[0]["unrolls/learned"] / lines[0]["updates"]
    assert groups in (2, 4)
    for line in lines:
        assert line["unrolls/learned"] == groups * line["updates"]


def test_a_run_in_one_process_tells_the_account_at_its_end(capsys, tmp_path):
    words = ["run", "native:CartPole-v1", "--plan", "threads", "--run-dir", str(tmp_path / "run")]
    assert main([*words, *ARGUMENTS.split()]) == 0
    account = re.search(r"unrolls: (\d+) produced = 24 learned \+ (\d) in", capsys.readouterr().out)
    assert account is not None
    produced, in_flight = map(int, account.groups())
    assert produced == 24 + in_flight
