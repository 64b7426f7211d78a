"""The Trainer reconciler: observe, decide, apply.

`observe` reads caches into a frozen view, `decide` is pure and returns a new status and actions, `apply` is the only
part that writes. Modules between are the decisions by noun: failures, budget, membership, directives, phase, pods.
Rule IDs are those of design/lifecycle.md.
"""
