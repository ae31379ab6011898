"""Population-based training: who goes on from whom, with what, and that the optimizer reads it."""

import json
import math
import os
import signal

import jax
import numpy as np
import pytest
from small_runs import assert_same
from sweeping import RATE, STEPS, begun, sweep

from srl.extras.sweep.population import exploits
from srl.extras.sweep.space import Listed, Range
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import RunFolder, read_config
from srl.run.metrics import read_metrics

SEARCHED = (
    Range(RATE, 1e-5, 1e-1, True, False, True),
    Listed("--algorithm.clip", ("0.1", "0.2"), True),
)
SETTINGS = [{RATE: f"0.00{n}", "--algorithm.clip": "0.1"} for n in range(1, 9)]
INTERVAL = 2  # updates
# Compared by the learning rate itself, which is 0 or 0.01: so the second is the better one. With
# this seed the other goes on from it with a rate of 0.
RATES = (
    *("--search", "pbt", "--population", "2", RATE, "0,0.01", "--algorithm.no-anneal"),
    *("--objective", "loss/learning_rate", "--every", str(INTERVAL * STEPS)),
    *("--env-steps", str(2 * INTERVAL * STEPS), "--search-seed", "1", "--parallel", "2"),
)


def state(member, version=None):
    tree, _ = Checkpoints(RunFolder(member).checkpoints).restore(version)
    return tree["learners"]["policy"]


def record(folder):
    """The last record of a population in the sweep's journal."""
    lines = map(json.loads, (folder / "sweep.journal").read_text().splitlines())
    return [line["user_attr"] for line in lines if "population" in line.get("user_attr", ())][-1][
        "population"
    ]


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    folder = tmp_path_factory.mktemp("population") / "s"
    assert sweep(folder, *RATES) == 0
    return folder


def test_the_worst_quarter_goes_on_from_the_best_with_settings_near_its_own():
    scores = [3.0, 8.0, 1.0, 4.0, 2.0, 7.0, 5.0, 6.0]
    found = [
        each
        for interval in range(1, 40)
        for each in exploits(scores, SETTINGS, SEARCHED, interval, seed=0)
    ]
    assert {each.member for each in found} == {2, 4}
    assert {each.source for each in found} == {1, 5}
    near = 0
    for each in found:
        before = float(SETTINGS[each.source][RATE])
        near += any(np.isclose(float(each.settings[RATE]), before * f) for f in (0.8, 1.2))
    assert 0.6 < near / len(found) < 0.9  # others are drawn anew, with probability 0.25
    again = exploits(scores, SETTINGS, SEARCHED, 1, seed=0)
    assert again == [each for each in found if each.interval == 1]


def test_members_that_have_failed_all_go_on_from_another_and_equals_do_not():
    scores = [-math.inf, 2.0, -math.inf, 1.0, -math.inf, 3.0, 2.0, 2.0]
    found = exploits(scores, SETTINGS, SEARCHED, 1, seed=0)
    assert sorted(each.member for each in found) == [0, 2, 4]
    assert all(scores[each.source] > -math.inf for each in found)
    assert exploits([1.0] * 8, SETTINGS, SEARCHED, 1, seed=0) == []


def test_after_an_exploit_the_optimizer_reads_the_changed_setting(population):
    (exploit,) = record(population)["exploits"]
    assert exploit["settings"] == {RATE: "0"}
    folders = [population / f"member-{number:03}" for number in range(2)]
    member, source = folders[exploit["member"]], folders[exploit["source"]]
    rates = [report["loss/learning_rate"] for report in read_metrics(source)]
    assert rates == pytest.approx([0.01] * 2 * INTERVAL)
    copied, ended, others = state(source, INTERVAL), state(member), state(source)
    # The checkpoint came from a run whose steps moved, and go on to move, parameters...
    assert any(
        map(np.any, jax.tree.leaves(jax.tree.map(np.not_equal, copied["params"], others["params"])))
    )
    # ... and with a learning rate of 0 they stay, while Adam's averages go on.
    assert_same(ended["params"], copied["params"])
    assert not np.array_equal(*(jax.tree.leaves(s["optimizer"])[-1] for s in (ended, copied)))
    assert read_metrics(member)[-1]["loss/learning_rate"] == 0
    assert read_config(RunFolder(member))["experiment"]["algorithm"]["learning_rate"] == 0


def test_a_population_that_was_killed_ends_as_one_that_was_not(population, tmp_path):
    def decided():
        file = tmp_path / "s" / "sweep.journal"
        return file.exists() and '"interval":2' in file.read_text()

    process = begun(tmp_path / "s", *RATES, until=decided)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert sweep(tmp_path / "s", *RATES) == 0
    assert record(tmp_path / "s") == record(population)
    for name in ("member-000", "member-001"):
        assert_same(state(tmp_path / "s" / name), state(population / name))


def test_settings_that_a_hook_changed_do_not_go_along_with_a_checkpoint(tmp_path):
    tree, metadata = {"learners": {"weights": np.arange(6.0)}}, {"env_steps": 70, "updates": 7}
    changed, adopting = Checkpoints(tmp_path / "a"), Checkpoints(tmp_path / "b")
    changed.save(7, tree, {**metadata, "settings": {"learning_rate": 0.5}}, wait=True)
    adopting.save(9, {"learners": {"weights": np.zeros(6)}}, metadata, wait=True)
    for _ in range(2):  # as after a command that was killed
        adopting.adopt(changed, without="settings")
    assert adopting.versions() == [7]
    assert adopting.metadata() == metadata
    assert_same(adopting.restore()[0], tree)
