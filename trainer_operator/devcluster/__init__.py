"""The embedded cluster: a real control plane on loopback, and nodes that run pods as processes."""

__all__: list[str] = []
