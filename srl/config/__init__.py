"""An experiment, its settings, and overrides of them."""
