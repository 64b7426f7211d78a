"""Explicit-state models of the rules that keep checkpoints safe; `python -m models` explores all of them.

A model is a handful of objects, records and processes that do one call at a time in any order and stop anywhere. Every
state that can be reached is visited, so a rule that holds here holds in every order of events within the bounds, which
README.md states. Rules are also weakened one by one, and have to break then, with the shortest trace that does it.
"""
