"""Memory that a start leaves."""

from pathlib import Path

from srl.loop.garbage import return_freed_memory


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def test_memory_freed_among_blocks_in_use_goes_back_to_the_operating_system():
    blocks = [bytes(2_000) for _ in range(60_000)]
    in_use = blocks[::1_000]  # so that the C library cannot shrink its heap from the end
    blocks.clear()
    before = _resident_mb()
    return_freed_memory()
    assert before - _resident_mb() > 50
    assert len(in_use) == 60
