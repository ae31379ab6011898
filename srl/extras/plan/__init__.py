"""Show the workers of a plan, and the data between them."""
