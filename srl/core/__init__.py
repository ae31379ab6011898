"""Types, trees, spaces, errors and values that all rooms share."""
