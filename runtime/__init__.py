"""A controller runtime for Kubernetes on asyncio: the API's mechanics, and nothing of any domain.

Layers, lowest first: the kernel (time, tasks, errors, metrics), queue and fence, objects, client, cache, controllers,
manager. Import from the module that owns the noun; this package exports nothing.
"""

__all__: list[str] = []
