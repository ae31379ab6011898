"""Memory between processes, which neither leaks nor faults."""

import contextlib
import fcntl
import gc
import os

import numpy as np
import pytest

from srl.core.errors import RunError
from srl.system.shared_memory import SharedMemory, available_bytes


def maps():
    """How often this process maps memory of this kind."""
    with open("/proc/self/maps") as file:
        return file.read().count("memfd:srl")


def open_memory():
    """How many descriptors of such memory this process has."""
    gc.collect()
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{fd}").startswith(("/memfd:", "/dev/null"))
    return count


def test_both_ends_see_the_same_bytes():
    here = SharedMemory.create(10_000)
    there = SharedMemory.attach(os.dup(here.fd), 10_000)
    here.array[:] = np.arange(10_000) % 251
    assert (there.array == here.array).all()
    assert here.array.ctypes.data % 4096 == 0
    assert not np.shares_memory(here.array, there.array)
    here.close()
    there.close()


def test_it_goes_with_its_last_array():
    descriptors, mappings = open_memory(), maps()
    memory = SharedMemory.create(10_000)
    array = memory.array[5:]
    memory.close()
    memory.close()
    assert memory.fd == -1
    del memory
    gc.collect()
    array[0] = 3
    assert maps() == mappings + 1
    del array
    gc.collect()
    assert maps() == mappings
    assert open_memory() == descriptors


def test_nothing_stands_in_the_folder_of_shared_memory():
    before = os.listdir("/dev/shm")
    memory = SharedMemory.create(1 << 20)
    assert os.listdir("/dev/shm") == before
    memory.close()


def test_more_than_there_is_is_told():
    with pytest.raises(RunError, match=r"cannot reserve 1,125,\d+.* are free; take smaller"):
        SharedMemory.create(1 << 50)


def test_memory_that_is_too_small_or_could_shrink_is_not_mapped():
    before = open_memory()
    memory = SharedMemory.create(1000)
    with pytest.raises(RunError, match="cannot map 1,001 bytes of shared memory: it has 1,000"):
        SharedMemory.attach(os.dup(memory.fd), 1001)
    with pytest.raises(RunError, match="cannot map 0 bytes"):
        SharedMemory.attach(os.dup(memory.fd), 0)
    with pytest.raises(PermissionError):
        os.truncate(memory.fd, 10)
    memory.close()
    del memory
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.truncate(loose, 1000)
    with pytest.raises(RunError, match="it may shrink"):
        SharedMemory.attach(os.dup(loose), 1000)
    fcntl.fcntl(loose, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    SharedMemory.attach(os.dup(loose), 1000).close()
    os.close(loose)
    with pytest.raises(RunError, match="this is no shared memory"):
        SharedMemory.attach(os.open("/dev/null", os.O_RDONLY), 1000)
    assert open_memory() == before


@pytest.mark.parametrize(
    ("mounted", "files", "cache", "listed"),
    [
        (".", ("memory.max", "memory.current"), "inactive_file", "0::/jobs/one\n"),
        (
            "memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            "total_inactive_file",
            "5:memory:/jobs/one\n0::/\n",
        ),
    ],
)
def test_a_limit_of_a_control_group_or_of_one_above_it_bounds_what_is_available(
    tmp_path, monkeypatch, mounted, files, cache, listed
):
    (tmp_path / "own").write_text(listed)
    monkeypatch.setattr("srl.system.control_group.ROOT", tmp_path)
    monkeypatch.setattr("srl.system.control_group.OWN", tmp_path / "own")
    machine = available_bytes()
    assert machine > 2**20
    group = tmp_path / mounted / "jobs" / "one"
    group.mkdir(parents=True)
    for folder, limit in ((group, "max"), (group.parent, "1000000")):
        for name, text in zip(files, (limit, "600000"), strict=True):
            (folder / name).write_text(text + "\n")
        (folder / "memory.stat").write_text(f"anon 500000\n{cache} 50000\n")
    assert available_bytes() == 450_000
    (group.parent / files[1]).write_text("2000000\n")
    assert available_bytes() == 0
