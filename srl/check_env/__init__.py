"""Runs an environment through the promises that training relies on: `srl check-env`."""

from srl.check_env.report import Finding

__all__ = ["Finding"]
