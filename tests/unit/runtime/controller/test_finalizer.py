"""Finalizers: guarded patches, against an API server of a few lines."""

import copy

import pytest

from runtime.client.errors import Conflict, Invalid, NotFound
from runtime.client.rest import PatchKind
from runtime.controller.finalizer import (
    ATTEMPTS,
    add_finalizer,
    add_patch,
    has_finalizer,
    remove_finalizer,
    remove_patch,
)
from runtime.objects import CONFIGMAPS
from runtime.testing.simloop import simulated

OURS = "example.com/ours"


def obj(*finalizers, uid="u1"):
    metadata = {"name": "a", "namespace": "ns", "uid": uid}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"metadata": metadata}


class Api:
    """Holds one object and applies guarded JSON patches to its finalizers."""

    def __init__(self, stored):
        self.stored = stored
        self.patches = 0
        self.before_patch = lambda: None

    async def get(self, resource, name, namespace=None):
        if self.stored is None:
            raise NotFound("gone", status=404)
        return copy.deepcopy(self.stored)

    async def patch(self, resource, name, body, *, namespace=None, kind=None):
        assert kind is PatchKind.JSON
        self.patches += 1
        self.before_patch()
        if self.stored is None:
            raise NotFound("gone", status=404)
        metadata = copy.deepcopy(self.stored["metadata"])
        for op in body:
            field, *index = op["path"].removeprefix("/metadata/").split("/")
            value = metadata.get(field)
            match op["op"], index:
                case "test", []:
                    if value != op["value"]:
                        raise Invalid("test failed", status=422)
                case "test", [number]:
                    if int(number) >= len(value or ()) or value[int(number)] != op["value"]:
                        raise Invalid("test failed", status=422)
                case "add", []:
                    metadata[field] = op["value"]
                case "add", ["-"]:
                    value.append(op["value"])
                case "remove", [number]:
                    del value[int(number)]
        self.stored = {"metadata": metadata}
        return copy.deepcopy(self.stored)


@simulated
async def test_a_finalizer_is_added_once():
    """R6."""
    api = Api(obj())
    held = await add_finalizer(api, CONFIGMAPS, obj(), finalizer=OURS)
    assert has_finalizer(held, OURS)
    assert await add_finalizer(api, CONFIGMAPS, held, finalizer=OURS) is held
    assert api.patches == 1


@simulated
async def test_other_parties_finalizers_survive_adding_and_removing():
    """R6."""
    api = Api(obj("theirs"))
    held = await add_finalizer(api, CONFIGMAPS, obj("theirs"), finalizer=OURS)
    assert held["metadata"]["finalizers"] == ["theirs", OURS]
    freed = await remove_finalizer(api, CONFIGMAPS, held, finalizer=OURS)
    assert freed["metadata"]["finalizers"] == ["theirs"]
    assert await remove_finalizer(api, CONFIGMAPS, freed, finalizer=OURS) is freed


@simulated
async def test_a_stale_view_is_read_again_and_drops_nothing():
    """R6, R4."""
    api = Api(obj("first", "theirs", OURS))
    freed = await remove_finalizer(api, CONFIGMAPS, obj(OURS), finalizer=OURS)
    assert freed["metadata"]["finalizers"] == ["first", "theirs"]
    api = Api(obj("new"))
    held = await add_finalizer(api, CONFIGMAPS, obj(), finalizer=OURS)
    assert held["metadata"]["finalizers"] == ["new", OURS]


@simulated
async def test_a_finalizer_that_somebody_else_has_added_meanwhile_is_not_doubled():
    """R6: removing it once would then hold the object for ever."""
    api = Api(obj("theirs", OURS))
    held = await add_finalizer(api, CONFIGMAPS, obj("theirs"), finalizer=OURS)
    assert held["metadata"]["finalizers"] == ["theirs", OURS]


@simulated
async def test_an_object_that_is_gone_is_freed_and_cannot_be_held():
    """R6: NotFound is done."""
    assert await remove_finalizer(Api(None), CONFIGMAPS, obj(OURS), finalizer=OURS) is None
    with pytest.raises(NotFound, match="no finalizer was added"):
        await add_finalizer(Api(None), CONFIGMAPS, obj(), finalizer=OURS)


@simulated
async def test_an_object_that_vanishes_between_patch_and_read_is_done():
    """R6."""
    api = Api(obj("theirs", OURS))

    def vanish():
        api.stored = None
        raise Conflict("changed", status=409)

    api.before_patch = vanish
    assert await remove_finalizer(api, CONFIGMAPS, obj(OURS), finalizer=OURS) is None


@simulated
async def test_a_successor_of_the_same_name_is_never_touched():
    """R6, RT15."""
    successor = obj(OURS, uid="u2")
    api = Api(successor)
    assert await remove_finalizer(api, CONFIGMAPS, obj(OURS), finalizer=OURS) is None
    with pytest.raises(NotFound):
        await add_finalizer(api, CONFIGMAPS, obj(), finalizer=OURS)
    assert api.stored == successor


@simulated
async def test_a_conflict_that_does_not_end_is_raised():
    """R4: no endless retry."""
    api = Api(obj())

    def refuse():
        raise Conflict("changed", status=409)

    api.before_patch = refuse
    with pytest.raises(Conflict):
        await add_finalizer(api, CONFIGMAPS, obj(), finalizer=OURS)
    assert api.patches == ATTEMPTS


def test_nothing_to_do_is_an_empty_patch():
    """R6."""
    assert add_patch(obj(OURS), OURS) == []
    assert remove_patch(obj(), OURS) == []
