"""Streams: what an edge between two fragments becomes."""
