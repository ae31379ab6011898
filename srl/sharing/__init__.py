"""Policies for use elsewhere: ONNX graphs, and folders to publish."""
