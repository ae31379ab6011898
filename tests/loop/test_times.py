"""What runs tell of their time and of their unrolls."""

import re
from collections import defaultdict

import pytest

from srl.cli import main
from srl.run.metrics import read_metrics

WORDS = (
    "--num-envs 8 --algorithm.unroll-length 16 --algorithm.epochs 1 --updates 12 --report-every 4"
)
KINDS = {
    "threads": {"learner": "learn", "actors": "act"},
    "central": {"learner": "learn", "actors": "inference wait", "acting": "act"},
    "parameter_server": {"server": "update", "actors": "gradient"},
    "decoupled": {"learner": "learn", "actors": "inference wait", "policies": "act"},
}


def _param(name):
    return name if name in ("threads", "decoupled") else pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[_param(name) for name in KINDS])
def run(request, tmp_path_factory):
    """The plan's name, the lines of its metrics, and the path of its folder."""
    path = tmp_path_factory.mktemp(request.param) / "run"
    words = ["run", "native:CartPole-v1", "--plan", request.param, "--run-dir", str(path)]
    assert main([*words, *WORDS.split()]) == 0
    return request.param, read_metrics(path)


def test_every_kind_of_worker_tells_what_all_of_its_time_goes_to(run):
    name, lines = run
    for line in lines:
        shares = defaultdict(dict)
        for key, share in line.items():
            if key.startswith("time/"):
                _, kind, activity = key.split("/")
                shares[kind][activity] = share
        assert shares.keys() == KINDS[name].keys()
        for own in shares.values():
            assert sum(own.values()) == pytest.approx(1)
            assert min(own.values()) >= 0
    for kind, activity in KINDS[name].items():
        assert max(line[f"time/{kind}/{activity}"] for line in lines) > 0.001


def test_a_report_says_what_holds_the_run_back(run):
    _, lines = run
    for line in lines:
        bound, wait = line["bottleneck"].split(": ")
        assert bound in ("learner-bound", "actor-bound", "inference-bound", "server-bound")
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
    assert main([*words, *WORDS.split()]) == 0
    account = re.search(r"unrolls: (\d+) produced = 24 learned \+ (\d) in", capsys.readouterr().out)
    assert account is not None
    produced, in_flight = map(int, account.groups())
    assert produced == 24 + in_flight
