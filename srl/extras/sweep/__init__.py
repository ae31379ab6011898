"""Train with several settings, and compare them."""
