"""Checkpoints: the state machine, the quorum, retention, and the Checkpoint reconciler.

The store is the truth and the Checkpoint object its cache and driver (CK1). In this version agents do all that
touches the store: holders write copies, the chief's agent carries out decisions. Rule IDs are those of
design/checkpoint.md.
"""
