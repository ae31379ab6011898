"""A pool that memory would not hold is refused before it is made."""

import gc
import sys

import pytest

from srl import UserError, make_pool
from srl.pools.memory_check import MEMORY, Growth, resident_bytes


@pytest.mark.parametrize(
    ("env", "num_envs", "workers"),
    [
        ("CartPole-v1", 10**8, None),
        ("CartPole-v1", 10**8, 2),
        ("native:CartPole-v1", 2 * 10**9, None),
        ("envpool:CartPole-v1", 2 * 10**9, None),
    ],
)
def test_more_environments_than_memory_holds_are_refused_with_their_sizes(env, num_envs, workers):
    freed = [bytearray(500) for _ in range(10**5)]  # which environments may then be made in
    del freed
    if env.startswith("envpool:"):
        pytest.importorskip("envpool")
    before = resident_bytes()
    with pytest.raises(UserError, match=r"would take about .* GiB of memory, .* each by the first"):
        make_pool(env, num_envs, workers=workers)
    assert resident_bytes() - before < 2**32


def test_environments_beyond_the_part_of_its_host_that_a_process_has_are_refused(monkeypatch):
    monkeypatch.setenv(MEMORY, str(10**6))
    with pytest.raises(UserError, match="but 977 KiB are available to it"):
        make_pool("CartPole-v1", 5000)


def test_garbage_collected_while_environments_are_made_hides_none_of_their_size():
    cycles = [[] for _ in range(10**5)]
    for one in cycles:
        one.append(one)
    del cycles, one  # garbage from here on
    growth = Growth()
    kept = [[] for _ in range(10**4)]
    gc.collect()
    assert growth.nbytes >= len(kept) * sys.getsizeof([])
