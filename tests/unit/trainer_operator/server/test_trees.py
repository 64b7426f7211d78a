"""What `GET /v1/trees` says of a Trainer that the operator cannot read, and what the plugin makes of it."""

from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from runtime.client.errors import error_of
from runtime.testing.clock import SimClock
from trainer_operator.api.trainer import Trainer
from trainer_operator.cli.plugin.failure import Complaint
from trainer_operator.cli.plugin.tree import Source
from trainer_operator.server.trees import LONGEST_SENTENCE, TreeApi
from trainer_operator.topology.forest import Forest
from trainer_operator.topology.members import Members
from trainer_operator.trainer.unreadable import Unreadable, read_trainer

ASKED = "/v1/trees/default/t"
STORED = {
    "metadata": {"name": "t", "namespace": "default", "uid": "uid-t", "generation": 1},
    "spec": {"epochs": 1, "image": "x", "topology": {"workers": 1}},
}


class EverybodyMay:
    """A reviewer that lets all users in."""

    async def refuses(self, token, key):
        return None


class Refusing:
    """A client whose every request is refused, as the real one tells it."""

    config = SimpleNamespace(server="https://operator:9443")

    def __init__(self, status, body):
        self._refusal = error_of(status, body)

    async def request(self, method, path, *, total):
        raise self._refusal


async def answer(found):
    """Ask on a real socket for the tree of what the cache holds."""
    clock = SimClock()
    api = TreeApi(
        Forest(clock), Members(clock), EverybodyMay(), trainer=lambda key: found, is_leader=lambda: True
    )
    application = web.Application()
    application.add_routes(api.routes())
    async with (
        TestClient(TestServer(application)) as client,
        client.get(ASKED, headers={"Authorization": "Bearer x"}) as response,
    ):
        return response.status, await response.read()


def damaged(**spec):
    return read_trainer({**STORED, "spec": {**STORED["spec"], **spec}})


async def test_a_trainer_that_cannot_be_read_is_answered_with_the_field_and_the_reason():
    """CR10: a stored object that the types refuse is no failure of the server."""
    found = damaged(topology={"workers": "many"})
    assert isinstance(found, Unreadable)
    status, body = await answer(found)
    assert status == 409
    assert b"Trainer t cannot be read: spec.topology.workers: " in body


async def test_a_sentence_about_a_long_value_still_is_whole_json_for_the_plugin():
    """CL1: the plugin repeats the operator's sentence, and keeps 500 characters of a refusal."""
    found = damaged(failureRules=[{"action": "x" * 5000}] * 40)
    status, body = await answer(found)
    with pytest.raises(Complaint) as told:
        await Source(SimpleNamespace(namespace="default"), "t", None)._ask(Refusing(status, body))
    assert str(told.value).startswith(
        "the operator at https://operator:9443 says: Trainer t cannot be read: spec.failureRules.0"
    )
    assert '{"error"' not in str(told.value)
    assert len(str(told.value)) < LONGEST_SENTENCE + 100


async def test_a_trainer_that_can_be_read_but_has_no_tree_yet_is_not_found():
    found = read_trainer(STORED)
    assert isinstance(found, Trainer)
    status, _ = await answer(found)
    assert status == 404
