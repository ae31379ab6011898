"""Hosts that run workers: this machine, and others by their supervisors."""
