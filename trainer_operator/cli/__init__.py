"""The command line `trainer-operator`: thin commands over the packages that do the work."""

__all__: list[str] = []
