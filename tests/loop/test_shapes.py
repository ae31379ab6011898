import dataclasses

import numpy as np
import pytest

from srl.algorithms import PPO
from srl.config.experiment import Experiment
from srl.core.types import Timestep, Unroll
from srl.dataflow import plans
from srl.dataflow.cut import cut
from srl.dataflow.graph import Field
from srl.dataflow.trace import trace
from srl.loop.shapes import shapes_of
from srl.networks import MLP
from srl.pools import make_pool


def shapes(experiment):
    pool = make_pool(experiment.env, 1)
    try:
        return shapes_of(experiment, pool.specs, pool.rows(1)[0].timestep, groups=2)
    finally:
        pool.close()


EXPERIMENT = Experiment(
    name="a",
    env="native:CartPole-v1",
    num_envs=6,
    algorithm=PPO(unroll_length=8, network=MLP(width=4), epochs=3, minibatches=2),
)


def test_fields_have_the_shapes_of_the_whole_run():
    found = shapes(EXPERIMENT)
    fields = {field.name: field for field in found.unrolls[8]}
    assert fields["observation"] == Field("observation", "float32", (9, 6, 4))
    assert fields["action"] == Field("action", "int32", (8, 6))
    assert fields["version"] == Field("version", "int32", (8, 2, 2))
    assert [field.name for field in found.timestep] == list(Timestep._fields)
    assert [field.name for field in found.unrolls[8]] == [
        n for n in Unroll._fields if n not in ("memory", "advice")
    ]
    assert found.gradient_steps == 6


def test_bytes_are_those_of_the_arrays():
    experiment = dataclasses.replace(EXPERIMENT, num_envs=4)
    pool = make_pool(experiment.env, 4)
    arrays = pool.rows(1)[0].timestep
    graph = trace(experiment.algorithm, shapes(experiment))
    pool.close()
    whole = next(e for e in graph.edges if (e.target, e.name) == ("collect", "timestep"))
    assert whole.nbytes == sum(np.asarray(x).nbytes for x in arrays)
    assert graph.bytes_per_env_step(whole) == whole.nbytes / 4
    sums = next(e for e in graph.edges if e.name == "sums")
    assert graph.bytes_per_env_step(sums) == sums.nbytes * 6 / (8 * 4)


def test_each_policy_is_counted():
    experiment = dataclasses.replace(
        EXPERIMENT,
        env="pettingzoo:mpe2.simple_tag_v3",
        policies={"adversary*": "chasers", "*": "runner"},
        num_envs=2,
    )
    names = [field.name for field in shapes(experiment).policy]
    assert names == ["policy/chasers", "policy/runner"]


def test_memory_is_carried_each_step_and_kept_once_a_chunk():
    recurrent = PPO(unroll_length=8, chunk=4, minibatches=2, network=MLP(width=4, memory=3))
    experiment = dataclasses.replace(EXPERIMENT, algorithm=recurrent)
    found = shapes(experiment)
    kept = [field for field in found.unrolls[8] if field.name.startswith("memory")]
    assert kept == [Field("memory/policy", "float32", (2, 6, 3))]
    graph = trace(recurrent, found)
    carried = next(e for e in graph.edges if (e.kind, e.name) == ("carry", "memory"))
    assert carried.fields == (Field("memory/policy", "float32", (6, 3)),)
    inference = next(s for s in cut(graph, plans.decoupled()) if s.kind == "inference")
    assert inference.request[-1] == inference.reply[-1] == carried.fields[0]


class Unequal(PPO):
    """Two unrolls of a pass, of other lengths."""

    lengths = (4, 64)

    def loop(self, run):
        for length in self.lengths:
            policy = run.latest()

            def interact(timestep, memory, policy=policy):
                decision = run.act(policy, timestep, memory)
                following = run.step(decision.action)
                return following, decision.memory, run.collect(timestep, decision)

            run.learn(run.gather(run.unroll(interact, length)))


class Reversed(Unequal):
    lengths = (64, 4)


@pytest.mark.parametrize("algorithm", [Unequal, Reversed])
def test_the_bytes_of_a_pass_are_those_of_its_unrolls_of_any_length(algorithm):
    experiment = dataclasses.replace(EXPERIMENT, algorithm=algorithm(network=MLP(width=4)))
    found = shapes(experiment)
    each = {length: sum(f.nbytes for f in fields) for length, fields in found.unrolls.items()}
    streams = cut(trace(experiment.algorithm, found), plans.inline())
    stream = next(stream for stream in streams if stream.kind == "sample")
    assert stream.bytes_per_env_step == pytest.approx((each[4] + each[64]) / (68 * 6))
