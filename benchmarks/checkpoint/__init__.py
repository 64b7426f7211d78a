"""What checkpoints cost and save; each module is one question, run by `python -m benchmarks.checkpoint`."""
