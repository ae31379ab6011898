"""Gradients and updates: compiled to one call, over replicas, or at both ends of a stream."""
