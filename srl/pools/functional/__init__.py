"""Pools of environments written in JAX: `environment.py` is what one has to be."""
