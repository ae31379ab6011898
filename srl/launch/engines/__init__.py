"""What places a run on a cluster: Slurm, Ray, and what they have in common."""
