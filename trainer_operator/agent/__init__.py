"""The agent: launcher of the training process, its voice towards the operator, and writer of checkpoints.

Standard library only and Python 3.8 syntax (AG3): this package is zipped into `agent.pyz` and runs inside the user's
image. Nothing is imported here, so that the package opens in milliseconds.
"""
