"""Learning gates: returns that algorithms have to reach on known environments."""
