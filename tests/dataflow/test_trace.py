import dataclasses
import itertools
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from srl.algorithms import PPO, Algorithm
from srl.core.errors import PlanError
from srl.dataflow.graph import Edge, Field, Graph, Unrolled
from srl.dataflow.trace import trace


def traced(loop):
    """The graph of an algorithm whose loop is this function."""

    class Own(Algorithm):
        def loop(self, run):
            loop(run)

    return trace(Own())


def refusal(loop):
    with pytest.raises(PlanError) as caught:
        traced(loop)
    return str(caught.value)


def a_loop(interact=None, after=None):
    """The usual loop, with a step or an end of one's own."""

    def loop(run):
        policy = run.latest()

        def usual(timestep, memory):
            decision = run.act(policy, timestep, memory)
            return run.step(decision.action), decision.memory, run.collect(timestep, decision)

        def step(timestep, memory):
            return interact(run, policy, timestep, memory) if interact else usual(timestep, memory)

        unroll = run.unroll(step, 8)
        return after(run, unroll) if after else run.learn(run.gather(unroll))

    return loop


def ways(graph):
    return {(edge.source, edge.target, edge.kind, edge.name) for edge in graph.edges}


EXPECTED = {
    ("learn", "act", "latest", "policy"),
    ("step", "act", "carry", "timestep"),
    ("act", "act", "carry", "memory"),
    ("act", "step", "call", "action"),
    ("step", "collect", "carry", "timestep"),
    ("act", "collect", "call", "decision"),
    ("collect", "learn", "gather", "unroll"),
    ("learn", "learn", "sum", "sums"),
}


def test_the_loop_of_an_algorithm_gives_its_nodes_and_edges():
    graph = trace(PPO())
    assert graph.nodes == ("step", "act", "collect", "learn")
    assert ways(graph) == EXPECTED


def test_edges_tell_which_fields_their_target_reads():
    edges = {(edge.target, edge.name): edge for edge in trace(PPO()).edges}
    read = [field.name for field in edges["act", "timestep"].fields]
    assert read == ["observation", "terminated", "truncated"]
    assert [field.name for field in edges["collect", "decision"].fields] == [
        *("action", "log_prob", "memory")
    ]
    assert edges["act", "timestep"].every == "step"
    assert edges["learn", "unroll"].every == "update"
    assert edges["learn", "sums"].every == "gradient step"


def test_a_loop_that_does_something_else_has_another_graph():
    def learning_twice(run, unroll):
        batch = run.gather(unroll)
        run.learn(batch)
        run.learn(batch)

    twice, once = traced(a_loop(after=learning_twice)), traced(a_loop())
    assert (once.learns, twice.learns) == (1, 2)
    assert ways(once) == ways(twice)
    assert once != twice
    times = {edge.name: edge.times for edge in twice.edges}
    assert (times["unroll"], times["sums"]) == (1, 2)


def test_edges_and_calls_count_the_steps_of_an_unroll():
    graph = traced(a_loop())
    assert dict(graph.calls) == {"step": 8, "act": 8, "collect": 8, "learn": 1}
    assert graph.unrolls == ((8, 0, ("act", "step", "collect")),)
    assert {edge.times for edge in graph.edges if edge.every == "step"} == {8}
    assert next(edge.times for edge in graph.edges if edge.name == "policy") == 1


def test_two_unrolls_with_a_policy_each_are_two_crossings_of_each():
    def loop(run):
        for length in (4, 6):
            policy = run.latest()

            def interact(timestep, memory, policy=policy):
                decision = run.act(policy, timestep, memory)
                following = run.step(decision.action)
                return following, decision.memory, run.collect(timestep, decision)

            run.learn(run.gather(run.unroll(interact, length)))

    graph = traced(loop)
    assert [unroll[:2] for unroll in graph.unrolls] == [(4, 0), (6, 1)]
    assert (graph.learns, graph.steps) == (2, 10)
    times = {(edge.target, edge.name): edge.times for edge in graph.edges}
    assert times["act", "policy"] == times["learn", "unroll"] == 2
    assert times["collect", "decision"] == 10


def one_step(run, policy, timestep, memory, repeat=1, advised=False):
    decision = run.act(policy, timestep, memory)
    advice = run.teach(timestep) if advised else None
    following = run.step(decision.action, repeat)
    return following, decision.memory, run.collect(timestep, decision, advice)


def test_a_repeated_action_is_several_steps_of_the_environments():
    graph = traced(a_loop(lambda *step: one_step(*step, repeat=4)))
    calls = dict(graph.calls)
    assert (calls["step"], calls["act"], graph.steps, graph.action_repeat) == (32, 8, 32, 4)
    assert {edge.times for edge in graph.edges if edge.every == "step"} == {8}


def test_a_teacher_is_a_node_whose_advice_is_collected():
    graph = traced(a_loop(lambda *step: one_step(*step, advised=True)))
    assert graph.nodes == ("step", "act", "teach", "collect", "learn")
    assert ways(graph) - EXPECTED == {
        ("step", "teach", "carry", "timestep"),
        ("teach", "collect", "call", "advice"),
    }


def test_an_action_kept_from_an_earlier_step_is_refused():
    def kept(run, policy, timestep, memory):
        if next(steps) % 4 == 0:
            latest[:] = [run.act(policy, timestep, memory)]
        row = run.collect(timestep, latest[0])
        return run.step(latest[0].action), latest[0].memory, row

    steps, latest = itertools.count(), []
    said = refusal(a_loop(kept))
    assert "gives `decision` of an earlier step to collect" in said
    assert "run.step(action, repeat=N)" in said


def test_a_memory_kept_from_the_first_step_is_refused():
    def kept(run, policy, timestep, memory):
        first.append(memory)
        return one_step(run, policy, timestep, first[0])

    first = []
    assert "gives `memory` of an earlier step to act" in refusal(a_loop(kept))


@pytest.mark.parametrize("begins", [1, 7])
def test_a_step_that_is_not_as_the_first_one_is_refused(begins):
    def late(run, policy, timestep, memory):
        return one_step(run, policy, timestep, memory, advised=next(steps) >= begins)

    steps = itertools.count()
    said = refusal(a_loop(late))
    assert f"step {begins + 1} of the loop's unroll is not as the first one" in said
    assert "in place of step(decision.action) it has teach(timestep)" in said


def test_steps_that_call_nodes_in_another_order_are_refused():
    def turning(run, policy, timestep, memory):
        if next(steps) % 2:
            return one_step(run, policy, timestep, memory)
        decision = run.act(policy, timestep, memory)
        row = run.collect(timestep, decision)
        return run.step(decision.action), decision.memory, row

    steps = itertools.count()
    assert "step 2 of the loop's unroll is not as the first one" in refusal(a_loop(turning))


def test_a_length_that_changes_from_pass_to_pass_is_refused():
    def loop(run):
        policy = run.latest()
        unroll = run.unroll(lambda *args: one_step(run, policy, *args), next(lengths))
        run.learn(run.gather(unroll))

    lengths = itertools.cycle((4, 8))
    said = refusal(loop)
    assert "the loop is not the same in every pass" in said
    assert "an unroll of 4 steps" in said
    assert "an unroll of 8 steps" in said


def test_a_learn_more_in_the_second_pass_is_refused():
    def after(run, unroll):
        batch = run.gather(unroll)
        for _ in range(1 + next(passes)):
            run.learn(batch)

    passes = itertools.count()
    said = refusal(a_loop(after=after))
    assert "where the first one has no further call, the second has a learn from unroll 0" in said


def test_a_batch_kept_from_an_earlier_pass_is_refused():
    def after(run, unroll):
        batches.append(run.gather(unroll))
        run.learn(batches[0])

    batches = []
    assert "learns from a batch that it has kept from an earlier pass" in refusal(
        a_loop(after=after)
    )


def test_steps_of_a_loop_repeat_their_actions_alike():
    def loop(run):
        for repeat in (2, 4):
            policy = run.latest()
            run.learn(
                run.gather(
                    run.unroll(lambda t, m, r=repeat, p=policy: one_step(run, p, t, m, r), 8)
                )
            )

    assert "steps 2 times with one action and 4 times with another" in refusal(loop)


@pytest.mark.parametrize("repeat", [0, -1, 1.5])
def test_a_repeat_is_a_whole_number(repeat):
    assert f"steps {repeat!r} times" in refusal(a_loop(lambda *step: one_step(*step, repeat)))


@pytest.mark.parametrize(
    ("interact", "told"),
    [
        (
            lambda run, p, t, m, d: (run.step(d.action), run.step(d.action)),
            "or repeat an action by run.step(action, repeat=N)",
        ),
        (
            lambda run, p, t, m, d: (run.act(p, t, m), run.step(d.action)),
            "a step's `decision` is never collected",
        ),
        (
            lambda run, p, t, m, d: (run.collect(t, d), run.step(d.action)),
            "a step's `row` is not given back",
        ),
        (
            lambda run, p, t, m, d: (run.collect(run.step(d.action), d), run.step(d.action)),
            "collects `decision` with another timestep than the one that it was made for",
        ),
        (
            lambda run, p, t, m, d: (run.teach(t), run.step(d.action)),
            "a step's `advice` is never collected",
        ),
        (lambda run, p, t, m, d: (run.teach(t), run.teach(t)), "calls run.teach(...) twice"),
        (
            lambda run, p, t, m, d: run.collect(t, d, run.teach(run.step(d.action))),
            "collects `advice` with another timestep",
        ),
        (lambda run, p, t, m, d: run.latest(), "calls run.latest() within a step"),
    ],
)
def test_a_step_that_gives_what_nothing_takes_is_refused(interact, told):
    def step(run, policy, timestep, memory):
        decision = run.act(policy, timestep, memory)
        *_, following = interact(run, policy, timestep, memory, decision)
        return following, decision.memory, run.collect(timestep, decision)

    assert told in refusal(a_loop(step))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (lambda run, unroll: None, "the loop's `unroll` is never gathered"),
        (lambda run, unroll: run.gather(unroll), "the loop's `batch` is never learned from"),
        (
            lambda run, unroll: (run.learn(run.gather(unroll)), run.gather(unroll)),
            "gathers an unroll twice",
        ),
        (
            lambda run, unroll: (run.latest(), run.learn(run.gather(unroll))),
            "the loop's `policy` is never acted with",
        ),
    ],
)
def test_a_loop_that_gives_what_nothing_takes_is_refused(after, told):
    assert told in refusal(a_loop(after=after))


def test_nodes_are_called_within_an_unroll():
    def loop(run):
        run.step(run.latest())

    assert "calls run.step(...) outside of an unroll" in refusal(loop)


def test_a_graph_is_a_value():
    graph, again = trace(PPO()), trace(dataclasses.replace(PPO(), discount=0.5))
    assert graph == again
    assert hash(graph) == hash(again)
    names = {"Graph": Graph, "Edge": Edge, "Field": Field, "Unrolled": Unrolled}
    assert eval(repr(graph), names) == graph
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.nodes = ()


@pytest.mark.parametrize(
    ("look", "told"),
    [
        (lambda run, t, d: d.action if t.terminated else None, "looks into `timestep.terminated`"),
        (lambda run, t, d: d.log_prob > 0, "looks into `decision.log_prob`"),
        (lambda run, t, d: t.reward + 1, "looks into `timestep.reward`"),
        (lambda run, t, d: d.action[0], "looks into `decision.action`"),
        (lambda run, t, d: [*t.observation], "looks into `timestep.observation`"),
        (lambda run, t, d: float(t.reward), "looks into `timestep.reward`"),
        (lambda run, t, d: -t.reward, "looks into `timestep.reward`"),
        (lambda run, t, d: t.reward == 3, "looks into `timestep.reward`"),
        (lambda run, t, d: d.value, "takes `value` of `decision`; it has action, log_prob, memory"),
        (lambda run, t, d: d.action.dtype, "looks into `decision.action`"),
        (lambda run, t, d: d.action(), "looks into `decision.action`"),
        (lambda run, t, d: np.abs(d.action), "looks into `decision.action`"),
        (lambda run, t, d: jnp.abs(d.action), "looks into `decision.action`"),
        (lambda run, t, d: run.step(d), "gives `decision` to step as its action"),
        (lambda run, t, d: run.step(3), "gives 3 to step as its action; expected what is a"),
        (lambda run, t, d: run.act(t, t, d.memory), "gives `timestep` to act as its policy"),
    ],
)
def test_a_loop_that_looks_into_a_value_is_stopped_with_a_sentence(look, told):
    def interact(run, policy, timestep, memory):
        decision = run.act(policy, timestep, memory)
        look(run, timestep, decision)
        return run.step(decision.action), decision.memory, run.collect(timestep, decision)

    assert told in refusal(a_loop(interact))


def test_a_step_that_gives_back_too_little_is_told():
    def two(run, policy, timestep, memory):
        decision = run.act(policy, timestep, memory)
        return run.step(decision.action), decision.memory

    def stale(run, policy, timestep, memory):
        decision = run.act(policy, timestep, memory)
        return run.step(decision.action), memory, run.collect(timestep, decision)

    def unwritten(run, policy, timestep, memory):
        decision = run.act(policy, timestep, memory)
        return run.step(decision.action), decision.memory, None

    assert "expected three things" in refusal(a_loop(two))
    assert "gives back the memory that it began with" in refusal(a_loop(stale))
    assert "expected what run.collect(...) gives" in refusal(a_loop(unwritten))


def test_an_unroll_that_is_not_gathered_is_told():
    told = refusal(a_loop(after=lambda run, unroll: run.learn(unroll)))
    assert "expected what run.gather(unroll) gives" in told


def test_tracing_without_shapes_loads_no_jax():
    program = (
        "import sys; from srl.algorithms import PPO; from srl.dataflow.trace import trace;"
        "trace(PPO()); assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_policy_is_not_renewed_while_an_earlier_unroll_is_not_gathered():
    def loop(run):
        def unroll(policy):
            def interact(timestep, memory):
                decision = run.act(policy, timestep, memory)
                following = run.step(decision.action)
                return following, decision.memory, run.collect(timestep, decision)

            return run.unroll(interact, 4)

        policy = run.latest()
        one, other = unroll(policy), unroll(policy)
        run.learn(run.gather(one))
        last = unroll(run.latest())
        run.learn(run.gather(other))
        run.learn(run.gather(last))

    assert "while an earlier unroll is not gathered" in refusal(loop)
