"""Stages of a training, before its first update and at its end."""

from enum import StrEnum

BEGIN_SECONDS = 300.0
"""The longest start of a main loop or a lesson: imports, simulators, compiling."""


class Stage(StrEnum):
    """The stage that a training, or one worker of it, is in."""

    STARTING = "starting"
    """It loads libraries, makes environments, and connects."""
    COMPILING = "compiling"
    RESETTING = "resetting"
    """Environments begin their first episodes."""
    STEPPING = "stepping"
    """It does its work: environments are stepped, and learned from."""
    SAVING = "saving"
    """It writes a checkpoint, or waits until an earlier one is written."""
    EVALUATING = "evaluating"
    """It waits at its end for the evaluation of its last version."""
