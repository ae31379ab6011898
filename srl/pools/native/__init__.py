"""Pools of environments written in C++: those built in, and those of libraries."""

from srl.pools.native.pool import NativePool

__all__ = ["NativePool"]
