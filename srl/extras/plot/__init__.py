"""Draw how runs have gone."""
