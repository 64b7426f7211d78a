"""This operator against its peers, in turn on the same real API server: `python -m benchmarks.stock`."""
