"""A real node: kubelet, containerd, runc and CNI, in namespaces of their own that the kernel takes down.

What process nodes only imitate is real here, so what they imitate can be compared. Needs root; see docs/devcluster.md.
"""

__all__: list[str] = []
