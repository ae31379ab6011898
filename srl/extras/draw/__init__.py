"""Pictures of a plan: which nodes run where, and what crosses between them."""
