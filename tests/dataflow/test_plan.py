import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitions import GRAPH, PARTITIONS, TAUGHT, WITH_TEACHER, WORKING

from srl.algorithms import DQN, PPO
from srl.config.curriculum import Lesson
from srl.config.experiment import Experiment
from srl.config.self_play import SelfPlay
from srl.core.errors import PlanError, UserError
from srl.dataflow import Fragment, Plan, num_groups, plans
from srl.dataflow.plan import shortage, steps_as_ready
from srl.dataflow.rules import check
from srl.workers.roles import role_of

ROOT = Path(__file__).parents[2]


def refusal(plan, graph=GRAPH):
    with pytest.raises(UserError) as caught:
        check(graph, plan)
    return str(caught.value)


def of(**fragments):
    return Plan("mine", {name: Fragment(tuple(v.split())) for name, v in fragments.items()})


@st.composite
def partitions(draw):
    """Every node in one of up to five fragments, with replicas."""
    plan = draw(st.sampled_from(PARTITIONS))
    fragments = {
        name: dataclasses.replace(fragment, replicas=draw(st.integers(1, 3)))
        for name, fragment in plan.fragments.items()
    }
    return dataclasses.replace(plan, fragments=fragments)


@pytest.mark.parametrize("name", plans.PLANS)
def test_every_plan_that_ships_can_work_and_carries_its_name(name):
    plan = plans.named(name)
    check(GRAPH, plan)
    assert plan.name == name


@given(partitions())
def test_a_partition_places_every_node_once(plan):
    for node in GRAPH.nodes:
        homes = [name for name, fragment in plan.fragments.items() if node in fragment.nodes]
        assert homes == [plan.home(node)]
        assert plan.fragment(node) is plan.fragments[homes[0]]


def test_the_ways_to_divide_the_loop_that_work_are_few():
    assert {plan.name for plan in WORKING} == {
        "step_act_collect_learn",
        "step_act_collect | learn",
        "step_collect | act | learn",
        "step_collect | act_learn",
        "step | act_collect | learn",
        "step | act_collect_learn",
    }


def test_the_documents_say_of_every_partition_whether_it_runs():
    table = {}
    for line in (ROOT / "docs" / "plans.md").read_text().splitlines():
        if line.startswith("| {"):
            _, parts, told, _ = line.split("|")
            table[frozenset(frozenset(part.split()) for part in re.findall("{(.*?)}", parts))] = (
                told
            )
    working = {plan.name for plan in WORKING}
    for plan in PARTITIONS:
        told = table.pop(frozenset(frozenset(f.nodes) for f in plan.fragments.values()))
        assert ("refused" not in told) == (plan.name in working), plan.name
    assert not table


def test_the_documents_say_where_a_teacher_may_be():
    told = set()
    for line in (ROOT / "docs" / "plans.md").read_text().splitlines():
        if line.startswith("| `{"):
            _, others, places, _ = line.split("|")
            others = {frozenset(part.split()) for part in re.findall("{(.*?)}", others)}
            for place in places.replace("`", "").split(","):
                home = next((part for part in others if place.strip() in part), frozenset())
                told.add(frozenset({*(others - {home}), home | {"teach"}}))
    working = {
        frozenset(frozenset(fragment.nodes) for fragment in plan.fragments.values())
        for plan in WITH_TEACHER
    }
    assert told == working
    assert len(working) == 15


@given(partitions())
def test_plans_are_values(plan):
    again = dataclasses.replace(plan, fragments=dict(reversed(plan.fragments.items())))
    assert plan == again
    assert hash(plan) == hash(again)
    assert eval(repr(plan), {"Plan": Plan, "Fragment": Fragment}) == plan
    other = dataclasses.replace(plan, name="other")
    assert plan != other
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.name = "changed"


@given(partitions(), st.sampled_from(GRAPH.nodes))
def test_a_plan_that_leaves_a_node_out_is_refused(plan, node):
    fragments = {
        name: dataclasses.replace(f, nodes=tuple(n for n in f.nodes if n != node))
        for name, f in plan.fragments.items()
    }
    fragments = {name: fragment for name, fragment in fragments.items() if fragment.nodes}
    told = refusal(dataclasses.replace(plan, fragments=fragments))
    assert f"node {node!r} is in no fragment" in told
    assert "add it to one" in told


@given(partitions(), st.sampled_from(GRAPH.nodes))
def test_a_plan_that_places_a_node_twice_is_refused(plan, node):
    fragments = {**plan.fragments, "second": Fragment((node,))}
    told = refusal(dataclasses.replace(plan, fragments=fragments))
    assert f"node {node!r} is in fragments {plan.home(node)!r} and 'second'" in told


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (of(all="step act colect learn"), "has the node 'colect'; did you mean collect?"),
        (of(all="step act collect learn zzz"), "there are step, act, collect"),
        (
            of(all="step act collect learn", t="teach"),
            "has the node 'teach'; the loop has no teacher",
        ),
        (of(all="step act collect learn step"), "node 'step' is in fragment 'all' twice"),
        (of(all="step act collect gradient"), "has the node 'gradient'; there are step"),
        (of(a="step", b="act", c="collect", d="learn"), "and 'a' gets no reply to it"),
        (of(a="step act", b="collect learn"), "and 'a' gets no reply to it"),
        (
            of(a="step collect learn", b="act"),
            "a steps and learns, and waits within each step for act in 'b'",
        ),
        (of(a="step learn", b="act collect"), "a steps and learns, and waits within each step for"),
        (Plan("mine", {}), "plan.fragments is {}"),
        (Plan("", {"all": Fragment(GRAPH.nodes)}), "plan.name is ''"),
        (Plan("mine", {"a b": Fragment(("learn",))}), "a fragment's name is 'a b'"),
        (Plan("mine", {"a": ("step",)}), "plan.a is ('step',); expected a Fragment"),
        (Plan("mine", {"a": Fragment("step")}), "plan.a.nodes is 'step'; expected a tuple"),
        (Plan("mine", {"a": Fragment(("step",), 0)}), "plan.a.replicas is 0; expected"),
        (
            Plan("mine", {"a": Fragment(("step",), 5, hosts=2)}),
            "plan.a.hosts is 2; expected a number that divides its 5 replicas",
        ),
        (Plan("mine", {"a": Fragment(("step",), gpus=-1)}), "plan.a.gpus is -1; expected"),
        (
            dataclasses.replace(plans.decoupled(learners=2), one_process=True),
            "learner has 2 replicas in one process",
        ),
        (
            Plan(
                "mine",
                {
                    "a": Fragment(("step", "collect"), compiled=True),
                    "b": Fragment(("act", "learn")),
                },
            ),
            "a is compiled, and would have to wait within each step for act in 'b'",
        ),
        (
            Plan(
                "mine", {"a": Fragment(GRAPH.nodes[:3]), "b": Fragment(("learn",), compiled=True)}
            ),
            "b is compiled, and the environments are stepped by a",
        ),
    ],
)
def test_a_plan_that_cannot_work_is_refused_with_the_cure(plan, told):
    assert told in refusal(plan)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (
            of(a="step", b="act collect", t="teach", c="learn"),
            "teach in 't' takes the timestep of step in 'a' at each step, and 'a' gets no reply",
        ),
        (of(a="step act", b="teach collect", c="learn"), "put teach with step"),
        (
            of(a="step act collect learn", t="teach"),
            "waits within each step for teach in 't'; put teach into a too, or step elsewhere",
        ),
        (
            dataclasses.replace(of(a="step act collect", b="learn teach"), one_process=True),
            "put step, act, collect and teach into one fragment and learn into another",
        ),
        (
            Plan(
                "mine",
                {
                    "a": Fragment(("step", "act", "collect"), compiled=True),
                    "b": Fragment(("learn",)),
                    "t": Fragment(("teach",)),
                },
            ),
            "a is compiled, and would have to wait within each step for teach in 't'",
        ),
    ],
)
def test_a_teacher_that_cannot_be_there_is_refused_with_the_cure(plan, told):
    assert told in refusal(plan, TAUGHT)


def test_a_teacher_that_no_fragment_names_is_with_act():
    for plan in map(plans.named, plans.PLANS):
        check(TAUGHT, plan)
        assert plan.home("teach") == plan.home("act")


def test_unrolls_are_compiled_where_the_teacher_is_with_the_actors():
    native = "native:CartPole-v1"
    assert plans.compiles_unrolls(of(a="step act collect", b="learn"), native)
    assert plans.compiles_unrolls(of(a="step act teach collect", b="learn"), native)
    assert not plans.compiles_unrolls(of(a="step act collect", t="teach", b="learn"), native)


def experiment(**fields):
    return Experiment(name="a", env="native:CartPole-v1", **fields)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (plans.fused(), 1),
        (plans.replicated(1), 1),
        (plans.replicated(2), 2),
        (plans.inline(actors=4), 4),
        (plans.decoupled(actors=4), 8),
        (plans.central(actors=2), 4),
        (plans.central(actors=1), 1),
        (plans.decoupled(actors=1), 1),
        (plans.serving(actors=2), 4),
        (plans.env_servers(actors=2, learners=2), 4),
        (plans.parameter_server(actors=2), 2),
        (of(a="step act collect", t="teach", b="learn"), 2),
        (of(a="step act collect teach", b="learn"), 1),
    ],
)
def test_each_worker_that_steps_has_a_group_or_two_where_it_waits_for_actions(plan, expected):
    assert num_groups(plan, experiment()) == expected


def test_groups_asked_for_are_taken():
    assert num_groups(plans.inline(actors=2), experiment(groups=8)) == 8


@dataclasses.dataclass(frozen=True)
class TwoUnrolls(PPO):
    """A pass has two unrolls."""

    def loop(self, run):
        super().loop(run)
        super().loop(run)


SLOW = {"env": "CartPole-v1", "num_envs": 8, "workers": 4, "max_staleness": 2}


@pytest.mark.parametrize(
    ("plan", "changed", "groups"),
    [
        (plans.inline(2), {}, 8),
        (plans.threads(2), {"max_staleness": None}, 8),
        (plans.inline(2), {"groups": 8}, 8),
        (plans.inline(2), {"env": "pettingzoo:turn_taking:Turns"}, 8),
        (plans.inline(2), {"algorithm": DQN()}, 8),
        (plans.inline(2), {"max_staleness": 0}, 2),
        (plans.inline(2), {"workers": 3}, 2),
        (plans.inline(2), {"workers": None}, 2),
        (plans.inline(2), {"groups": 4}, 4),
        (plans.inline(2), {"env": "native:CartPole-v1"}, 2),
        (plans.inline(2), {"env": "vector:CartPole-v1"}, 2),
        (plans.inline(2), {"self_play": SelfPlay()}, 2),
        (plans.inline(2), {"curriculum": (Lesson({}, "updates >= 1"),)}, 2),
        (plans.inline(2), {"algorithm": TwoUnrolls()}, 2),
        (plans.decoupled(2), {}, 4),
        (plans.replicated(2), {}, 2),
    ],
)
def test_environments_with_a_process_each_step_as_they_get_ready_on_stale_parameters(
    plan, changed, groups
):
    slow = Experiment(name="slow", **{**SLOW, **changed})
    assert num_groups(plan, slow) == groups
    assert steps_as_ready(plan, slow) == (groups == 8)


def test_environments_too_few_for_two_groups_each_are_one_group_each():
    assert num_groups(plans.central(actors=2), experiment(num_envs=2)) == 2


@pytest.mark.parametrize(
    ("plan", "fields", "told"),
    [
        (plans.inline(3), {}, "64 environments cannot be divided into 3 equal groups; give num"),
        (plans.inline(2), {"groups": 3, "num_envs": 9}, "3 groups cannot be divided among the 2"),
        (plans.decoupled(2, 1, 3), {}, "4 groups cannot be divided among the 3 replicas of learne"),
        (plans.fused(), {"env": "CartPole-v1"}, "'CartPole-v1' is not native: take another plan"),
        (plans.fused(), {"env": lambda: None}, "is not native: take another plan"),
        ("decopled", {}, "did you mean decoupled?"),
        ("zzz", {}, "there are fused, threads, inline"),
        (3, {}, "plan is 3; expected a plan such as plans.inline()"),
    ],
)
def test_an_experiment_that_does_not_fit_its_plan_is_refused(plan, fields, told):
    with pytest.raises(UserError) as caught:
        dataclasses.replace(experiment(plan=plan), **fields).validate()
    assert told in str(caught.value)


@given(partitions(), st.integers(1, 200), st.integers(0, 12))
def test_groups_are_equal_and_each_belongs_to_one_worker(plan, num_envs, asked):
    try:
        count = num_groups(plan, experiment(num_envs=num_envs, groups=asked))
    except PlanError:
        return
    assert num_envs % count == 0
    assert count % plan.fragment("step").replicas == 0
    assert count % plan.fragment("learn").replicas == 0


def test_resources_beyond_the_machine_are_told():
    plan = Plan(
        "mine",
        {
            "a": Fragment(("step", "act", "collect"), replicas=3, cores=2),
            "b": Fragment(("learn",), cores=1, gpus=1.5),
        },
    )
    assert shortage(plan, 7, 2) == ""
    assert shortage(plan, 4, 2) == "the plan 'mine' asks for 7 cores, and there are 4"
    assert "asks for 1.5 GPUs, and there are 1" in shortage(plan, 8, 1)


def test_a_plan_costs_an_experiment_file_nothing():
    program = (
        "import sys; from srl import plans, Plan, Fragment; plans.inline().validate();"
        "heavy = {'jax', 'numpy', 'gymnasium', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Twice(PPO):
    """Learns twice from each batch."""

    def loop(self, run):
        super().loop(Doubled(run))


class Doubled:
    def __init__(self, run):
        self._run = run

    def __getattr__(self, name):
        return getattr(self._run, name)

    def learn(self, batch):
        self._run.learn(batch)
        self._run.learn(batch)


class InTwoParts(PPO):
    """Takes two unrolls of different lengths a pass."""

    def loop(self, run):
        for length in (32, 64):
            dataclasses.replace(PPO(), unroll_length=length).loop(run)


@pytest.mark.parametrize(
    ("algorithm", "refused_by"),
    [
        (Twice(), {}),
        (
            InTwoParts(),
            {
                "central": "learner collects what actors steps, and the loop's unrolls differ",
                "serving": "policies collects what actors steps, and .* unrolls differ",
                "env_servers": "learners collects what actors steps, and .* unrolls differ",
            },
        ),
    ],
    ids=["twice", "in two parts"],
)
@pytest.mark.parametrize("plan", plans.PLANS)
def test_a_loop_is_run_as_written_or_refused_by_name(plan, algorithm, refused_by):
    def validate():
        experiment(algorithm=algorithm, plan=plan).validate()

    if plan not in refused_by:
        return validate()
    with pytest.raises(PlanError, match=refused_by[plan]):
        validate()


def test_a_loop_that_never_learns_is_refused():
    class Idle(PPO):
        def loop(self, run):
            """Does nothing."""

    with pytest.raises(PlanError, match="a pass needs one of each at least"):
        experiment(algorithm=Idle()).validate()


def test_every_fragment_of_a_plan_that_is_not_refused_has_a_role():
    roles = {
        plan.name: [role_of(fragment).__name__ for fragment in plan.fragments.values()]
        for plan in WORKING
    }
    assert roles == {
        "step_act_collect_learn": ["run_whole_loop"],
        "step_act_collect | learn": ["run_actor", "run_learner"],
        "step_collect | act | learn": ["run_actor", "run_policy", "run_learner"],
        "step_collect | act_learn": ["run_actor", "run_learner"],
        "step | act_collect | learn": ["run_actor", "run_policy", "run_learner"],
        "step | act_collect_learn": ["run_actor", "run_learner"],
    }
