"""The names of the games that the environment plays."""

from __future__ import annotations

from typing import Literal

Task = Literal[
    "hide_and_seek",
    "lock_and_return",
    "sequential_lock",
    "blueprint",
    "shelter",
    "object_counting",
]
"""The tasks, in the order of the numbers that the environment gives."""
