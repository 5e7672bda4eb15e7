"""Studies: the papers' experiments, the store of their results, and its summary."""
