"""The load of this machine's GPUs, as `nvidia-smi` reports it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence

from srl.system.gpus import machine_gpus

_PROGRAM = "nvidia-smi"
_INTERVAL_MS = 500
_NAME, _LOAD = "name", "utilization.gpu"


class GpuLoad:
    """Samples the GPUs' load until it is closed; none where there is no `nvidia-smi`."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []  # time, and percent of one GPU
        self._process: subprocess.Popen[str] | None = None
        own = [f"--id={','.join(gpus)}"] if (gpus := machine_gpus()) else []
        argv = _query(_LOAD, f"--loop-ms={_INTERVAL_MS}", *own)
        try:
            self._process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return
        self._thread = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit():  # else "[N/A]", or that there is no driver
                self._samples.append((time.time(), float(line)))

    def mean(self, begin: float, end: float) -> float | None:
        """The mean percentage of this process' GPUs between two times; None if it is not known."""
        taken = [load for when, load in tuple(self._samples) if begin <= when <= end]
        return sum(taken) / len(taken) if taken else None

    def close(self) -> None:
        """Ends the sampling."""
        if self._process is not None:
            self._process.terminate()
            self._thread.join()
            with self._process:  # closes its output, and waits for its end
                pass


def gpu_names() -> list[str]:
    """The names of the machine's GPUs; none where there is no `nvidia-smi`."""
    try:
        done = subprocess.run(_query(_NAME), capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def _query(what: str, *more: str) -> Sequence[str]:
    return [_PROGRAM, f"--query-gpu={what}", "--format=csv,noheader,nounits", *more]
