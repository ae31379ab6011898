"""Trainers of the runs of a sweep: this machine, Slurm or Ray."""
