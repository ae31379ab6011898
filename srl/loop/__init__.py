"""An algorithm's loop as it runs: each side of it, and the streams between them."""
