"""A process node: a kubelet whose containers are processes of this machine.

It registers a Node, takes the pods that the scheduler binds to it, runs their commands in namespaces of their own
and reports them as a kubelet does wherever a controller can see it. The image of a container is only a name.
"""

__all__: list[str] = []
