"""Starts and watches the workers that train a run, here or on a cluster."""
