"""The log of XLA, which writes to standard error."""

import os


def quiet_xla() -> None:
    """Keeps XLA's log off the terminal; only before JAX is imported, and where no level is set.

    Its notes about long compilations look like a crash. Failures reach Python as exceptions.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
