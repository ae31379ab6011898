"""Engines that place a run on a cluster: Slurm, Ray, and their common parts."""
