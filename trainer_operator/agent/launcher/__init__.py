"""The launcher: one training process at a time, in its own process group, with the environment of its epoch (AG1)."""
