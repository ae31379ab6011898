"""Benchmarks, as subcommands of `srl bench`."""
