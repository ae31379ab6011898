"""The node `act`: with policies of this worker, and for other workers."""
