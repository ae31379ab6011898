"""Processes that work beside a run: they read its folder, write there, and take little time.

`process.py` starts such a process, restarts it when it dies, and ends it with the run.
`priority.py` lowers its priority and keeps XLA to one thread, and `cpu_limit.py` makes it rest, so
that it takes no more than its share of the processors.
"""
