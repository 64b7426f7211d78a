"""Who stands for election."""

import socket

from runtime.leaderelection import new_identity


def test_an_identity_names_the_pod_and_is_never_given_twice():
    """L10: two processes in one pod, or a pod that was made again, are two."""
    first, second = new_identity(), new_identity()
    assert first != second
    assert first.startswith(f"{socket.gethostname()}_")
