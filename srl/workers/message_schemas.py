"""Schemas of messages to the controller, checked before any field is used.

So a malformed message of one worker is refused, and cannot end the run of all.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

from srl.core.errors import RunError
from srl.record.json_shape import COUNT, fits
from srl.record.specs_json import specs_from_json
from srl.streams.transport import Message, Refused
from srl.workers.control import ControlMessage, unpack

ADDRESS = re.compile(r"(unix|thread):.+|(tcp(\+aes)?://)?\S+:\d+|\S+ unix:.+ tcp(\+aes)?://\S+:\d+")
"""The address at which something listens: a stream, or learners that meet."""

SCHEMAS: dict[int, dict[Any, Any]] = {
    ControlMessage.HELLO: {"addresses": {str: ADDRESS}, "specs": dict | None},
    ControlMessage.BEAT: {
        "state": str,
        "stage?": str,
        "idle": float,
        "longest?": float,
        "grown": {str: float},
        "updates?": COUNT,
        "seconds?": {str: float},
    },
    ControlMessage.REPORT: {
        "env_steps": COUNT,
        "updates": COUNT,
        "bottleneck?": str,
        str: float | None,
    },
    ControlMessage.EVENT: {
        "happened": [(str, {str: float | str | None})],
        "settings": {str: float},
        "number": COUNT,
    },
    ControlMessage.SAY: {"text": str},
    ControlMessage.STOPPED: {},
    ControlMessage.FAILED: {
        "summary": str,
        "text": str,
        "by_user": bool,
        "by_peer": bool,
        "final?": bool,
    },
}
"""The shape of what workers send, by kind; see `fits`."""


def checked_values(
    message: Message, shapes: Mapping[int, dict[Any, Any]] = SCHEMAS
) -> dict[str, Any]:
    """The JSON object that a message carries, if that is as its kind must be.

    Raises:
        Refused: If it carries anything else, or is of another kind.
    """
    if message.kind not in shapes:
        raise Refused(f"a message of kind {message.kind}")
    values = demand_shape(f"message {message.kind}", unpack(message), shapes[message.kind])
    if message.kind == ControlMessage.HELLO and values["specs"] is not None:
        try:
            specs_from_json(values["specs"])
        except RunError as error:
            raise Refused(str(error)) from error
    return values


def demand_shape(name: str, values: dict[str, Any], shape: dict[Any, Any]) -> dict[str, Any]:
    """Gives the values, which are to have this shape.

    Raises:
        Refused: If they do not.
    """
    if not fits(values, shape):
        fields = ", ".join(field for field in shape if field is not str)
        raise Refused(
            f"{name} is {reprlib.repr(values)}; expected {fields or 'nothing'} as srl does"
        )
    return values
