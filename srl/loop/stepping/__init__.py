"""Groups of environments: in this thread, in threads beside it, and in other workers."""
