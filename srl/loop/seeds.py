"""Seeds of environments, from the run's."""

from __future__ import annotations

import hashlib


def environment_seed(seed: int, salt: str) -> int:
    """Gives the first environment's seed; neighbouring run seeds share no environment."""
    digest = hashlib.sha256(f"{salt} {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1
