"""Pools of environments written in C++: those built in, and those of libraries."""
