"""Compiled programs are kept on disk, so that a second start need not compile them again."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def keep_compiled_programs() -> None:
    """Turns on JAX's compilation cache in this process, in the user's cache folder.

    SRL_COMPILATION_CACHE names another folder, or is 0 for none. A folder that JAX was already
    given (JAX_COMPILATION_CACHE_DIR) stays.
    """
    import jax

    folder = _folder(jax.config.values["jax_compilation_cache_dir"])
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        for name, value in _SETTINGS.items():
            jax.config.update(name, value)


def cache_environment() -> dict[str, str]:
    """The variables that turn the cache on in processes started with them; imports no JAX."""
    folder = _folder(os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    if folder is None:
        return {}
    settings = {"jax_compilation_cache_dir": folder, **_SETTINGS}
    return {name.upper(): str(value) for name, value in settings.items()}


def _folder(given: str | None) -> Path | None:
    """The folder for compiled programs, `given` being JAX's own setting; None for nowhere."""
    chosen = os.environ.get("SRL_COMPILATION_CACHE")
    if chosen == "0":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen or given or base / "srl" / "jax" / _processor())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("compiled programs are not kept: %s", error)
        return None
    return folder


def _processor() -> str:
    """A hash of what this processor can do: machines that share a home folder may differ."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:12]
