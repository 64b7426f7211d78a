"""Volumes that have to be attached before they are used."""

import pytest

from trainer_operator.devcluster.node.attachments import Attachments
from trainer_operator.devcluster.node.environment import Unresolved


class Api:
    """The node's own Node object."""

    def __init__(self):
        self.status = {}
        self.reports = []

    async def get(self, resource, name):
        return {"status": self.status}

    async def patch(self, resource, name, body, **options):
        self.reports.append(body["status"]["volumesInUse"])
        self.status = self.status | body["status"]
        return {"status": self.status}


async def test_volume_is_reported_in_use_before_it_is_waited_for():
    """ND4: the controller detaches nothing that a node says it uses."""
    api = Api()
    attachments = Attachments("n", api)
    with pytest.raises(Unresolved, match="volume v is not attached to node n yet"):
        await attachments.use("pod", "v")
    api.status["volumesAttached"] = [{"name": "v", "devicePath": ""}]
    await attachments.use("pod", "v")
    assert api.reports == [["v"]]


async def test_volume_is_in_use_until_its_last_pod_has_ended():
    api = Api()
    api.status["volumesAttached"] = [{"name": "v"}, {"name": "w"}]
    attachments = Attachments("n", api)
    await attachments.use("one", "w")
    await attachments.use("one", "v")
    await attachments.use("two", "v")
    await attachments.release("one")
    await attachments.release("one")
    await attachments.release("two")
    assert api.reports == [["w"], ["v", "w"], ["v"], []]
    assert attachments.in_use() == []
