"""A run: its folder, its metrics, its end, and how it is shown."""
