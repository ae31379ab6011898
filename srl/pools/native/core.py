"""The C++ module."""

from __future__ import annotations

from typing import Any

from srl.system.native_module import load_core

core: Any = load_core()
"""The module `srl._core`; its calls are in `srl/_core.pyi`."""
