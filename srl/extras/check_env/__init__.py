"""Runs an environment through the promises that training relies on: `srl check-env`."""
