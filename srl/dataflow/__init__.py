"""The training loop as a graph, plans that spread it, and the streams that its cut edges become."""
