"""The plain loop: one thread steps, acts, collects and learns, a function call for every edge."""
