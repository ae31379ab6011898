"""Sweeps: runs of one experiment with several settings, and populations that change theirs."""
