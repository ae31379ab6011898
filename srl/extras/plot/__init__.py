"""Draw curves of runs."""
