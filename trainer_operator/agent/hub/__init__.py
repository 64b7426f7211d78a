"""The hub's client: pins a revision of a repository, and brings files whose hashes are right (HF1 to HF4).

Runs in init containers of a member's pod, on the operator's image: the reconciler makes those (`trainer.weightfiles`).
"""
