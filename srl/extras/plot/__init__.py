"""Curves of runs: read from their folders, grouped by configuration, averaged over seeds, drawn."""
