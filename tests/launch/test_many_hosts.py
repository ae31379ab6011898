"""A controller with many hosts: its work grows with the number of workers, and no faster."""

import sys

from many_hosts import Start


def calls_in_rounds(folder, hosts, slots=4):
    """Begins a run with so many hosts; gives the number of calls in each of its rounds."""
    workers = str(hosts * slots)
    start = Start(folder, "--num-envs", workers, "--plan.actors.replicas", workers)
    for _ in range(hosts // 2):
        start.hosts.come("actors", slots)
    rounds = []

    def count(frame, event, argument):
        rounds[-1] += event in ("call", "c_call")

    def counted(step):
        if len(rounds) == 5:  # until then half of the workers wait in vain
            start.hosts.come("learner", 1)
            for _ in range(hosts - hosts // 2):
                start.hosts.come("actors", slots)
        rounds.append(0)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            step()
        finally:
            sys.setprofile(before)

    start.run(lambda: len(start.hosts.begun) == hosts * slots + 1, counted)
    return rounds


def test_a_round_of_a_start_takes_as_long_as_there_are_workers_and_no_longer(tmp_path):
    calls_in_rounds(tmp_path / "first", 2)  # it imports modules
    few, many = (calls_in_rounds(tmp_path / str(hosts), hosts) for hosts in (16, 128))
    assert max(many) < 1.5 * 8 * max(few)
    assert max(many[2:5]) < 1.5 * 8 * max(few[2:5])  # while half of them wait in vain


def start_with(folder, *options):
    """A start with a host for the learner and for one of two actors, and no others."""
    start = Start(folder, "--num-envs", "4", *options)
    start.hosts.come("learner", 1)
    start.hosts.come("actors", 1)
    return start


def test_a_run_begins_with_the_actors_that_have_a_host_and_the_others_come_in(tmp_path):
    start, steps = start_with(tmp_path / "run", "--max-staleness", "1"), []

    def step(one):
        steps.append(set(start.hosts.begun))
        if len(start.hosts.begun) == 2:
            start.hosts.come("actors", 1)
        one()

    start.run(lambda: len(start.hosts.begun) == 3, step)
    assert {1, 3} in steps
    assert start.terminal.said == [
        "the run begins; 1 of 2 actors wait for a host: they take part when they have one"
    ]


def test_at_staleness_0_a_run_waits_for_all_actors_and_says_why(tmp_path):
    start, rounds = start_with(tmp_path / "run", "--max-staleness", "0"), iter(range(20))
    start.run(lambda: next(rounds, None) is None)
    assert not start.hosts.begun
    _, details, _ = start.controller.stage()
    assert "; 1 of 2 actors wait for a host (--max-staleness 0 needs them all)" in details


def test_a_run_with_several_learners_begins_when_each_has_an_actor(tmp_path):
    options = ("--plan", "decoupled", "--plan.learner.replicas", "2", "--plan.actors.replicas", "4")
    start = Start(tmp_path / "run", "--num-envs", "8", "--max-staleness", "1", *options)
    for fragment in ("learner", "learner", "policies", "actors", "actors"):
        start.hosts.come(fragment, 1)  # the first two actors are for the first learner
    begun = []

    def step(one):
        begun.append(len(start.hosts.begun))
        if len(begun) == 20:
            start.hosts.come("actors", 1)
        one()

    start.run(lambda: start.hosts.begun, step)
    assert len(begun) > 20
