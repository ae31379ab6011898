"""The contents of a run's folder: records, checkpoints, versions, opponents."""
