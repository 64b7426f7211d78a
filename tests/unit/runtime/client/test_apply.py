"""What is sent of an object that is applied."""

from runtime.client.apply import apply, apply_status, configuration
from runtime.objects import CONFIGMAPS

READ = {
    "metadata": {
        "name": "a",
        "namespace": "ns",
        "uid": "1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2024-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "labels": {"app": "x"},
        "annotations": {},
        "selfLink": "/x",
    },
    "data": {"k": "1"},
    "status": {"phase": "Ready"},
}


class Patching:
    """Remembers what was patched."""

    def __init__(self):
        self.calls = []

    async def patch(self, resource, name, body, **kwargs):
        self.calls.append((name, body, kwargs))
        return body


def test_what_the_server_wrote_is_not_sent_back():
    """R5, RT31."""
    assert configuration(CONFIGMAPS, READ) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "ns", "labels": {"app": "x"}},
        "data": {"k": "1"},
    }
    assert "managedFields" in READ["metadata"]


def test_a_guard_keeps_uid_and_version():
    """R5."""
    metadata = configuration(CONFIGMAPS, READ, guarded=True)["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("1", "7")
    assert "managedFields" not in metadata


async def test_force_is_used_only_when_it_is_asked_for():
    """R5."""
    client = Patching()
    await apply(client, CONFIGMAPS, READ, field_manager="spec")
    await apply(client, CONFIGMAPS, READ, field_manager="spec", force=True)
    assert [kwargs["force"] for _, _, kwargs in client.calls] == [False, True]
    assert {kwargs["field_manager"] for _, _, kwargs in client.calls} == {"spec"}


async def test_a_status_goes_through_its_subresource_and_nothing_else_with_it():
    """R5."""
    client = Patching()
    await apply_status(client, CONFIGMAPS, READ, {"phase": "Done"}, field_manager="status")
    ((name, body, kwargs),) = client.calls
    assert (name, kwargs["subresource"], kwargs["field_manager"]) == ("a", "status", "status")
    assert kwargs["force"]  # a status belongs to whoever reports it
    assert body == {"metadata": {"name": "a", "namespace": "ns"}, "status": {"phase": "Done"}}
