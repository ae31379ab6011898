"""What all tests share."""

import contextlib
import gc
import mmap
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("srl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("srl")


TESTS = Path(__file__).parent
WHOLE_RUNS = {"cluster", "faults", "launch", "loop", "run", "self_play", "workers"}
"""Folders whose tests start whole runs."""


MOST_BYTES = 2 << 30
"""Memory of a process of tests, above which it forgets compiled programs: there are gigabytes."""


def pytest_configure() -> None:
    """Lets Ctrl-C reach the processes of tests, also where a shell's `&` has it ignored.

    Compiled programs go to the folder that SRL_COMPILATION_CACHE names, also those of processes of
    tests that keep none by themselves.
    """
    from srl.system.compilation import cache_environment

    if "SRL_COMPILATION_CACHE" not in os.environ:
        os.environ["SRL_COMPILATION_CACHE"] = str(programs_folder())
    os.environ |= cache_environment()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Gives `-n auto` more workers than cores: whole runs wait much of their time."""
    cores = len(os.sched_getaffinity(0))
    return cores + -(-cores // 2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long tests first: a long file that begins last would leave the other cores idle."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] not in WHOLE_RUNS)


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_leave_memory() -> Iterator[None]:
    """Forgets the programs of files so far, once they take much; on disk they stay."""
    yield
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    if "jax" in sys.modules and pages * mmap.PAGESIZE > MOST_BYTES:
        sys.modules["jax"].clear_caches()


MOST_ON_DISK = 1 << 30
"""Bytes of compiled programs on disk, above which a session begins anew; one makes 80 MB."""


def programs_folder() -> Path:
    """The folder for the compiled programs of all sessions and checkouts, without damaged ones.

    Processors that differ have one each.
    """
    from srl.system.compilation import _processor

    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "srl" / "tests" / _processor()
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another session begins, too
            sizes[path] = path.stat().st_size
    too_many = sum(sizes.values()) > MOST_ON_DISK
    for path, size in sizes.items():
        if too_many or not size:  # a process was killed before it wrote
            path.unlink(missing_ok=True)
    return folder


@pytest.fixture(autouse=True, scope="session")
def compiled_programs_are_kept() -> None:
    """Compiles each program once: for all sessions, their workers and processes of tests."""
    from srl.system.compilation import keep_compiled_programs

    keep_compiled_programs()


@pytest.fixture(autouse=True, scope="session")
def garbage_is_collected_seldom() -> None:
    """Traces are millions of small objects, nearly all of which stay, as in a run's start."""
    gc.set_threshold(100_000)


PLUGIN = "def initialize():\n    pass  # registers nothing, as where a driver is missing\n"


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, and JAX's plugin for it: as much as can be seen of them before JAX starts."""
    from srl.system.gpus import jax_gpus

    package = tmp_path / "plugins" / "jax_plugins" / "xla_cuda12"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plugins"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert jax_gpus() == ["0"]


FAKE_GPU = """
import json
import os
from pathlib import Path

from jax._src import xla_bridge
from jaxlib import xla_client


def client():
    opened = {"gpus": os.environ["CUDA_VISIBLE_DEVICES"], "choices": os.environ.get("SRL_GPU", "")}
    opened |= xla_client.generate_pjrt_gpu_plugin_options()  # which NVIDIA's plugin gives to XLA
    Path(__file__).with_name(f"{os.getpid()}.json").write_text(json.dumps(opened))
    return xla_bridge.make_cpu_client()


def initialize():
    xla_bridge.register_backend_factory("gpu_of_cpu", client, priority=400, fail_quietly=False)
"""


@pytest.fixture
def fake_gpu(gpu: None, tmp_path: Path) -> Path:
    """A GPU that the CPU computes for: JAX's default device in new processes.

    Each process that takes it writes `PID.json` into this folder: the options for its memory, and
    the choices for GPUs.
    """
    folder = tmp_path / "plugins" / "jax_plugins" / "xla_cuda12"
    (folder / "__init__.py").write_text(FAKE_GPU)
    return folder
