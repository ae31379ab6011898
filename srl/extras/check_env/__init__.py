"""Check that an environment keeps its promises."""
