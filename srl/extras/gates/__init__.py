"""Learning gates: what algorithms have to reach on known environments, and whether they do."""
