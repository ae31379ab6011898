"""Measure how fast a part runs."""
