"""Show what would run where, and what would cross between."""
