"""Playing whole episodes with the policies of a run, to measure them and to film them."""
