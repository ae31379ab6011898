"""Compiled programs are kept on disk, so that a second start need not compile them again."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def keep_compiled_programs() -> None:
    """Turns on JAX's compilation cache, in the user's cache folder.

    SRL_COMPILATION_CACHE names another folder, or is 0 for none. A folder that JAX was already
    given (JAX_COMPILATION_CACHE_DIR) stays.
    """
    chosen = os.environ.get("SRL_COMPILATION_CACHE")
    if chosen == "0":
        return
    import jax

    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    given = jax.config.values["jax_compilation_cache_dir"]
    folder = Path(chosen or given or base / "srl" / "jax" / _processor())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("compiled programs are not kept: %s", error)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _processor() -> str:
    """Names what this processor can do: a home folder may be shared with machines that differ."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:12]
