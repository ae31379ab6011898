"""A start does without the garbage collector, and leaves it as it was."""

import gc

import pytest

from srl.loop.garbage import no_garbage_collection


def fail_within():
    with no_garbage_collection():
        assert not gc.isenabled()
        raise KeyError


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_afterwards_as_it_was_before_also_after_an_error(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(KeyError):
            fail_within()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
