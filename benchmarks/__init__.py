"""Measurements behind the claims of the documents: `python -m benchmarks [name…] [--quick]`.

Each benchmark compares its subjects in one run on one machine and stores figures, conditions and versions as JSON in
`results/`; the tables in `docs/benchmarks/` are generated from these files alone.
"""
