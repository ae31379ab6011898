"""Starts and watches what trains a run: its folder, its worker, what the terminal shows."""
