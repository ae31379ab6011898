"""Cores and GPUs are divided so that workers stay out of each other's way."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from srl.dataflow import plans
from srl.dataflow.plan import Fragment, Plan
from srl.launch.hosts.resources import shares
from srl.launch.hosts.supervisor import _room
from srl.pools.memory_check import MEMORY
from srl.system.cores import SHARE

counts = st.sampled_from([0, 0, 1, 2, 0.5])
nodes = st.sampled_from([("step",), ("act",), ("learn",)])
fragment = st.builds(Fragment, nodes, replicas=st.integers(1, 4), cores=counts, gpus=counts)
any_plan = st.dictionaries(st.sampled_from("abc"), fragment, min_size=1).map(
    lambda fragments: Plan("any", fragments)
)


@given(any_plan, st.integers(1, 16))
def test_no_core_has_two_workers_and_all_have_one_or_none_has(plan, number):
    parts = [share.cores for share in shares(plan, range(number), [], 800).values()]
    used = [core for part in parts for core in part]
    assert len(set(used)) == len(used) <= number
    assert all(parts) or not any(parts)
    threads = [
        int(s.environment["OMP_NUM_THREADS"]) for s in shares(plan, range(4), [], 800).values()
    ]
    assert min(threads) >= 1


@given(any_plan, st.integers(1, 16))
def test_a_worker_gets_the_cores_it_asks_for(plan, number):
    for (name, _), share in shares(plan, range(number), [], 800).items():
        if share.cores and plan.fragments[name].cores:
            assert len(share.cores) >= plan.fragments[name].cores


def test_without_a_wish_all_workers_go_where_there_is_room():
    given = shares(plans.inline(1), range(2), [], 800)
    assert {share.cores for share in given.values()} == {()}


def test_threads_of_replicas_fill_the_cores_together_where_they_run_anywhere():
    given = shares(plans.inline(2), range(8), [], 800)
    filled = {worker: share.environment[SHARE] for worker, share in given.items()}
    assert filled == {("actors", 0): "4", ("actors", 1): "4", ("learner", 0): "8"}
    assert shares(plans.inline(9), range(8), [], 800)["actors", 0].environment[SHARE] == "1"


def test_workers_of_one_fragment_of_a_cluster_s_plan_are_bound_as_under_the_whole_plan(monkeypatch):
    for name in ("srl.launch.hosts.hosts", "srl.system.background.cpu_limit"):
        monkeypatch.setattr(f"{name}.os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    for plan, fragment, cores in (
        (plans.inline(4), "actors", 0),
        (plans.decoupled(4), "policies", 0),
        (plans.replicated(4), "learners", 2),
    ):
        host = _room(plan, fragment, 2, run=1)
        try:
            for share in host._shares.values():
                assert len(share.cores) == cores
                assert share.environment.get(SHARE, "") == ("" if cores else "2")
        finally:
            host.close()
            host.ledger.close()


def test_what_is_left_over_goes_to_the_learner():
    plan = plans.inline(2)
    actors = replace(plan.fragments["actors"], cores=2)
    plan = replace(plan, fragments={**plan.fragments, "actors": actors})
    given = shares(plan, range(8), [], 800)
    assert {SHARE} & {name for share in given.values() for name in share.environment} == set()
    assert [len(share.cores) for share in given.values()] == [2, 2, 4]
    assert given["learner", 0].environment["OMP_NUM_THREADS"] == "4"


def test_with_too_few_cores_all_go_where_there_is_room():
    given = shares(plans.inline(4), range(2), [], 800)
    assert {share.cores for share in given.values()} == {()}
    assert {share.environment["OMP_NUM_THREADS"] for share in given.values()} == {"1"}


def test_without_a_wish_the_learner_has_the_gpu():
    given = shares(plans.inline(2), range(8), ["0"], 800)
    assert given["learner", 0].environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert "JAX_PLATFORMS" not in given["learner", 0].environment
    assert given["actors", 0].environment["JAX_PLATFORMS"] == "cpu"


def test_learners_and_policy_workers_share_a_gpu_and_its_memory():
    given = shares(plans.decoupled(), range(8), ["0"], 800)
    for worker in (("policies", 0), ("learner", 0)):
        assert given[worker].environment["CUDA_VISIBLE_DEVICES"] == "0"
        assert given[worker].environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"


def test_a_teacher_shares_the_gpu_as_policy_workers_do():
    inline = plans.inline(1)
    plan = replace(inline, fragments={**inline.fragments, "teacher": Fragment(("teach",))})
    given = shares(plan, range(8), ["0"], 800)
    for worker in (("teacher", 0), ("learner", 0)):
        assert given[worker].environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    assert given["actors", 0].environment["JAX_PLATFORMS"] == "cpu"


MEMORY_SHARES = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")
PREALLOCATED = 0.75  # of a GPU, by a process of JAX's that is given no share


@given(any_plan, st.integers(1, 3))
def test_workers_on_a_gpu_never_take_more_memory_than_it_has(plan, number):
    taken, workers = dict.fromkeys(map(str, range(number)), 0.0), dict.fromkeys(range(number), 0)
    for share in shares(plan, range(8), list(taken), 800).values():
        found = [share.environment[name] for name in MEMORY_SHARES if name in share.environment]
        for gpu in filter(None, share.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")):
            taken[gpu] += float(found[0]) if found else PREALLOCATED
            workers[int(gpu)] += 1
    for gpu, fraction in taken.items():
        assert fraction <= 0.9 + 0.001 * workers[int(gpu)]


def test_a_share_of_memory_has_the_name_that_the_user_has_chosen(monkeypatch):
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.8")  # JAX refuses both names together
    given = shares(plans.decoupled(), range(8), ["0"], 800)["learner", 0].environment
    assert [name for name in MEMORY_SHARES if name in given] == ["XLA_CLIENT_MEM_FRACTION"]


def test_workers_are_spread_over_gpus():
    plan = plans.inline(2)
    fragments = {name: replace(f, gpus=0.5) for name, f in plan.fragments.items()}
    given = shares(replace(plan, fragments=fragments), range(8), ["3", "5"], 800)
    used = [share.environment["CUDA_VISIBLE_DEVICES"] for share in given.values()]
    assert used == ["3", "5", "3"]


def test_without_gpus_workers_stay_on_the_cpu():
    given = shares(plans.inline(2), range(8), [], 800)
    assert {share.environment["JAX_PLATFORMS"] for share in given.values()} == {"cpu"}


def test_processes_that_step_environments_divide_the_memory_of_their_host():
    given = shares(plans.inline(4), range(8), [], 800)
    memory = {name: share.environment.get(MEMORY) for (name, _), share in given.items()}
    assert memory == {"actors": "200", "learner": None}
