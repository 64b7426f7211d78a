"""The Trainer Operator: reconcilers, agent, embedded cluster and command line.

Nothing is imported here, so that `python -m trainer_operator.agent` starts in milliseconds.
"""
