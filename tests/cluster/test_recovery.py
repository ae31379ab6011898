"""How soon a run on Slurm is itself again after what befalls its hosts; `-rA` shows the figures."""

import os
import time

import numpy as np
import pytest
from slurm_run import APART, CARTPOLE, Pace, SlurmRun, newest, parameters, updates
from watching import account

from srl.config.experiment import load_experiment
from srl.launch.local import train
from srl.run.folder import create_run

pytestmark = pytest.mark.slow
LONG = (*APART, "--env-steps", "1_000_000_000", "--report-every", "1")
CALM_SECONDS = 10.0  # over which the usual pace is taken
CUT_SECONDS = 60.0  # longer than leases, and than Slurm believes in a silent node


@pytest.fixture
def figures(record_property):
    """Tells a measured figure, with the load of the machine at the time."""

    def tell(**measured):
        for name, value in {**measured, "load": os.getloadavg()[0]}.items():
            shown = round(value, 1) if isinstance(value, float) else value
            record_property(name, shown)
            print(f"{name}: {shown}")  # noqa: T201

    return tell


def usual_fps(run):
    """Waits until the run has gone on undisturbed for a while; gives its pace."""
    run.until(updates(20))
    begin = time.time()
    run.until(lambda run: time.time() > begin + CALM_SECONDS)
    return Pace(run).fps(begin, begin + CALM_SECONDS)


def until_time(run, end):
    run.until(lambda run: time.time() > end)


def ended(run):
    """Ends a run; what it tells is the whole account."""
    run.stop()
    assert run.wait() == 130, run.all
    told = account(run.told)
    assert told.learned == 4 * newest(run.folder)
    return told


def bounded(run, staleness):
    return all(line["staleness_max"] <= staleness for line in run.metrics())


@pytest.mark.parametrize("staleness", [4, 0])
def test_an_actors_host_loses_power_and_comes_back(slurm, tmp_path, figures, staleness):
    cluster = slurm(4)
    run = SlurmRun(cluster, tmp_path / "run", *LONG, "--max-staleness", str(staleness))
    fps = usual_fps(run)
    host, lost = run.host("actors"), time.time()
    host.power_off()
    cluster.wait_nodes({host.name: "down*"})
    reached, returned = run.metrics()[-1]["updates"], time.time()
    cluster.power_on(host)
    run.until(lambda run: "goes to " + host.name in run.log.partition("is out of reach")[2])
    run.until(updates(reached + 20))
    until_time(run, time.time() + 10)
    pace = Pace(run)
    figures(
        fps_before=fps,
        away_seconds=returned - lost,
        fps_while_away=pace.fps(lost + 5, returned),
        longest_pause_while_away=pace.longest_pause(lost, returned),
        fps_back_after=pace.back(returned, fps),
    )
    while_away = [line for line in pace.lines if lost + 10 < line["time"] < returned]
    assert bool(while_away) == (staleness > 0)
    assert bounded(run, staleness)
    figures(unrolls=ended(run))


def test_a_learners_host_loses_power_and_slurm_finds_that_out(slurm, tmp_path, figures):
    cluster = slurm(5)
    minutes = 0.1
    run = SlurmRun(cluster, tmp_path / "run", *LONG, "--checkpoint-minutes", str(minutes))
    fps = usual_fps(run)
    run.until(lambda run: newest(run.folder))
    host, lost = run.host("learner"), time.time()
    host.power_off()
    before = Pace(run).lines
    run.until(lambda run: run.metrics()[-1]["time"] > lost + 1)
    first = next(line for line in run.metrics() if line["time"] > lost + 1)
    kept_at = [line["time"] for line in before if line["updates"] < first["updates"]][-1]
    until_time(run, time.time() + 10)
    figures(
        trains_again_after=first["time"] - lost,
        checkpoint_age=lost - kept_at,
        fps_before=fps,
        fps_back_after=Pace(run).back(first["time"], fps),
    )
    assert run.host("learner").name != host.name
    assert lost - kept_at < 60 * minutes + 5  # which writing it may take
    assert bounded(run, 0)
    figures(unrolls=ended(run))


@pytest.mark.parametrize("kind", ["actors", "policies", "learner"])
def test_a_short_cut_loses_at_most_what_was_in_flight(slurm, tmp_path, figures, kind):
    words = ("--report-every", "1", "--algorithm.no-anneal")
    budget = ("--env-steps", "1_000_000_000")
    run = SlurmRun(slurm(4), tmp_path / "run", *APART, *words, *budget)
    fps = usual_fps(run)
    host, cut = run.host(kind), time.time()
    host.cut()
    until_time(run, cut + 5)
    healed = time.time()
    host.heal()
    run.until(lambda run: run.metrics()[-1]["time"] > healed + 15)
    figures(
        fps_before=fps,
        longest_pause=Pace(run).longest_pause(cut, healed + 15),
        fps_back_after=Pace(run).back(healed, fps),
    )
    told = ended(run)
    figures(unrolls=told)
    assert "started again" not in run.told
    assert told.lost <= told.learned / newest(run.folder)
    assert told.rolled_back == 0
    assert bounded(run, 0)
    if kind != "policies":
        return
    assert told.lost == 0  # so that nothing may differ from a run on this machine
    here = (*CARTPOLE[1:], *APART, *words, "--updates", str(newest(run.folder)))
    resolved = load_experiment(CARTPOLE[0], here)
    folder = create_run(resolved, tmp_path / "here")
    assert train(resolved.experiment, folder) == 0
    assert np.array_equal(parameters(run.folder), parameters(folder.path))


@pytest.mark.parametrize(
    ("kind", "nodes"), [("actors", 5), ("policies", 5), ("learner", 5), ("learner", 4)]
)
@pytest.mark.parametrize("staleness", [0, 4])
def test_nothing_of_a_host_that_was_long_cut_off_is_taken(
    slurm, tmp_path, figures, kind, nodes, staleness
):
    cluster = slurm(nodes)
    words = ("--max-staleness", str(staleness), "--checkpoint-minutes", "0.1")
    run = SlurmRun(cluster, tmp_path / "run", *LONG, *words)
    fps = usual_fps(run)
    host, cut = run.host(kind), time.time()
    host.cut()
    until_time(run, cut + CUT_SECONDS)
    healed = time.time()
    host.heal()

    def goes_on(run):
        # Where no other node is free, Slurm starts the job again on this one too early for itself:
        # it finds the cut-off start still there, drains the node and holds the job, which only
        # people may end.
        if cluster.states()[host.name] == "drained":
            figures(drained_by_slurm=host.name)
            cluster.run("scontrol", "update", f"nodename={host.name}", "state=resume")
            cluster.run("scontrol", "release", run.number(kind))
        return run.metrics()[-1]["time"] > healed + 20  # Slurm has ended what it placed elsewhere

    run.until(goes_on)
    run.until(lambda run: run.job(kind)["JobState"] == "RUNNING")
    run.until(lambda run: run.metrics()[-1]["time"] > healed + 20)
    reached = run.metrics()[-1]["updates"]
    run.until(updates(reached + 20))
    pace = Pace(run)
    figures(
        fps_before=fps,
        longest_pause=pace.longest_pause(cut, healed),
        fps_back_after_cut=pace.back(cut + 5, fps),
        fps_back_after_heal=pace.back(healed, fps),
        fps_in_the_end=pace.fps(time.time() - 10, time.time()),
        placed_on=run.host(kind).name,
    )
    assert bounded(run, staleness)
    assert "the run failed" not in run.told
    figures(unrolls=ended(run))


def test_the_death_of_the_controller_is_not_felt(slurm, tmp_path, figures):
    run = SlurmRun(slurm(4), tmp_path / "run", *LONG)
    fps = usual_fps(run)
    killed = time.time()
    run.kill_controller()
    run.until(lambda run: run.log.count("found ") == 4)
    found = time.time()
    until_time(run, killed + 30)
    pace = Pace(run)
    figures(
        fps_before=fps,
        controller_back_after=found - killed,
        longest_pause=pace.longest_pause(killed, killed + 30),
        fps_first_10_seconds=pace.fps(killed, killed + 10),
        fps_then=pace.fps(killed + 10, killed + 30),
    )
    assert ended(run).rolled_back == 0
    assert "started again" not in run.told
