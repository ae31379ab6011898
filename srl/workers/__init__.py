"""Workers: what runs the parts of a training loop."""
