"""Specs as JSON: what comes back is what went in, and nothing else passes."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.core.errors import RunError
from srl.core.types import Specs
from srl.pools import make_pool
from srl.record.specs_json import specs_from_json, specs_to_json

shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
numbers = st.integers(1, 9)


@st.composite
def boxes(draw):
    shape, dtype = draw(shapes), np.dtype(draw(st.sampled_from(["f4", "f8", "u1", "i4", "i8"])))
    low = draw(st.sampled_from([0, 1, -np.inf] if dtype.kind == "f" else [0, 1]))
    bounds = np.arange(np.prod(shape, dtype=int)).reshape(shape) if draw(st.booleans()) else 0
    high = np.inf if dtype.kind == "f" and draw(st.booleans()) else bounds + 5
    high = np.asarray(high, dtype) + np.zeros(shape, dtype)
    return spaces.Box(np.full(shape, low, dtype), high, shape, dtype.type)


@st.composite
def multi_discretes(draw):
    counts = draw(st.lists(numbers, min_size=1, max_size=4))
    start = draw(st.lists(st.integers(-3, 3), min_size=len(counts), max_size=len(counts)))
    return spaces.MultiDiscrete(np.array(counts), start=np.array(start))


simple = st.one_of(
    boxes(),
    multi_discretes(),
    st.builds(spaces.Discrete, numbers, start=st.integers(-3, 3)),
    st.builds(spaces.MultiBinary, st.one_of(numbers, st.lists(numbers, min_size=1, max_size=3))),
)
any_space = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.dictionaries(st.text(min_size=1, max_size=5), inner, min_size=1, max_size=3).map(
            lambda parts: spaces.Dict(tuple(parts.items()))
        ),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)
names = st.lists(st.text(max_size=8), max_size=3).map(tuple)
any_specs = st.builds(
    Specs,
    observation=any_space,
    action=simple,
    agents=names,
    statistics=names,
    max_episode_steps=st.none() | st.integers(1, 10**6),
    agent_spaces=st.lists(st.tuples(any_space, simple), max_size=2).map(tuple),
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "parts", "shape", "dtype", "low", "n", "nvec", "start"]),
            inner | st.sampled_from(["Box", "Dict", "Tuple", "Discrete", "MultiBinary", "<f4"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)


def keys(space):
    """The names of a space's parts, in order: two Dicts are equal whatever their order."""
    if isinstance(space, spaces.Dict):
        return [(name, keys(part)) for name, part in space.items()]
    return [keys(part) for part in space] if isinstance(space, spaces.Tuple) else None


@given(any_specs)
@settings(max_examples=60)
def test_specs_come_back_as_they_were(specs):
    back = specs_from_json(json.loads(json.dumps(specs_to_json(specs))))
    assert back == specs
    assert keys(back.observation) == keys(specs.observation)


@given(any_specs.map(specs_to_json), st.data())
@settings(max_examples=60)
def test_anything_else_is_read_or_refused_with_one_kind_of_error(value, data):
    value[data.draw(st.sampled_from(sorted(value)))] = data.draw(any_json)
    with contextlib.suppress(RunError):
        assert isinstance(specs_from_json(value), Specs)


def test_a_space_of_unbelievable_size_takes_no_memory():
    value = specs_to_json(Specs(spaces.Box(0, 1, (2,)), spaces.Discrete(2), ("agent",)))
    value["observation"]["shape"] = [1 << 20, 1 << 20]
    with pytest.raises(RunError, match="shape"):
        specs_from_json(value)


@pytest.mark.parametrize(
    ("tasks", "task_of"), [(["a"], []), ([], [0]), (["a"], [1]), (["a", "b"], [0, -1])]
)
def test_tasks_that_environments_do_not_have_are_refused(tasks, task_of):
    specs = Specs(spaces.Box(0, 1, (2,)), spaces.Discrete(2), ("agent",))
    value = {**specs_to_json(specs), "tasks": tasks, "task_of": task_of}
    with pytest.raises(RunError, match="environments of the tasks"):
        specs_from_json(value)


def test_many_environments_of_a_task_come_back():
    one = Specs(spaces.Box(0, 1, (2,)), spaces.Discrete(2), ("agent",))
    specs = replace(one, tasks=("a", "b", "c"), task_of=(1,) * 9 + (2,) * 90)
    assert specs_from_json(specs_to_json(specs)) == specs


@pytest.mark.parametrize("name", ["native:CartPole-v1", "CartPole-v1", "native:HideAndSeek-v1"])
def test_specs_of_environments_come_back(name):
    with make_pool(name, 1) as pool:
        assert specs_from_json(specs_to_json(pool.specs)) == pool.specs
