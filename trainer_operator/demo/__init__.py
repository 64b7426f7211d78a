"""The demo: a real training on the embedded cluster, disturbed in every way the operator promises to survive."""

__all__: list[str] = []
