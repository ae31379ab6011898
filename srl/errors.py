"""Errors that a person can act on: what was given, what was expected, what to do."""


class SrlError(Exception):
    """Base of all errors that srl raises on purpose."""


class UserError(SrlError):
    """The user's mistake: told in a line or two, without a traceback; exit code 2."""


class RunError(SrlError):
    """A failure while running, such as a simulator that raised or a full disk; exit code 1."""
