"""Pools whose environments are stepped by worker processes, through shared memory."""
