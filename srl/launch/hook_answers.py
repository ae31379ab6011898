"""The wishes of a run's hooks, as messages to the workers that learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.run.hooks import Asking
from srl.streams.transport import Message
from srl.workers.control import ControlMessage, pack


class HookAnswers:
    """Asks the hooks once for each event, however often a worker sends it."""

    def __init__(self, hooks: Asking) -> None:
        self._hooks = hooks
        self._last: tuple[tuple[int, int], Message] | None = None

    def to(self, incarnation: int, event: Mapping[str, Any]) -> Message:
        """The answer to an event of `ControlMessage.EVENT`, for an incarnation of the learners."""
        key = incarnation, event["number"]
        if self._last is None or self._last[0] != key:
            wanted = self._hooks.ask(event["happened"], event["settings"])
            values = {"number": event["number"], **wanted._asdict()}
            self._last = key, pack(ControlMessage.ANSWER, values)
        return self._last[1]
