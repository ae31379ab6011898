"""A wait for what other threads and processes do."""

import time


def wait_until(condition, seconds=60, told=lambda: "it did not come to pass"):
    """Waits for a condition, and gives what it gives; the test fails with `told()` otherwise."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, told()
        time.sleep(0.01)
    return found
