"""Conversion reviews: all objects or none, and never another object."""

import pytest

from runtime.webhook import ConversionFailed


def review(*objects, desired="example.com/v2"):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u-1", "desiredAPIVersion": desired, "objects": list(objects)},
    }


def old(name, **spec):
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": spec}


def upgrade(obj, version):
    if obj["spec"].get("broken"):
        raise ConversionFailed(f"{obj['metadata']['name']} has no form in {version}")
    obj["apiVersion"] = version
    obj["spec"]["size"] = obj["spec"].pop("count", 0)
    return obj


def rename(obj, version):
    obj["metadata"]["name"] = "other"
    return obj | {"apiVersion": version}


def forget(obj, _version):
    return obj


def fail(obj, _version):
    return obj["nothing"]


def converting(serving, convert=upgrade):
    return serving(lambda server: server.add_conversion("/convert", convert))


async def test_every_object_arrives_in_the_wanted_version(serving):
    """AD7, RT41: in order, and one that has the version already is left alone."""
    done = {"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "c"}, "spec": {"size": 3}}
    async with converting(serving) as asked:
        status, answer = await asked.post("/convert", review(old("a", count=1), old("b", count=2), done))
    assert status == 200
    response = answer["response"]
    assert (response["uid"], response["result"]) == ("u-1", {"status": "Success"})
    assert [obj["spec"] for obj in response["convertedObjects"]] == [{"size": 1}, {"size": 2}, {"size": 3}]
    assert {obj["apiVersion"] for obj in response["convertedObjects"]} == {"example.com/v2"}


async def test_a_page_of_a_list_may_be_larger_than_an_admission_review(serving):
    """AD7: the limit of one is not that of the other."""
    async with converting(serving) as asked:
        status, answer = await asked.post(
            "/convert", review(*(old(f"n{n}", x="x" * 20_000) for n in range(500)))
        )
    assert (status, len(answer["response"]["convertedObjects"])) == (200, 500)


@pytest.mark.parametrize(
    ("convert", "objects", "told"),
    [
        (upgrade, [old("a"), old("b", broken=True)], "b has no form in example.com/v2"),
        (rename, [old("a")], "changed the identity of 'a'"),
        (forget, [old("a")], "'example.com/v1' instead of 'example.com/v2'"),
        (upgrade, [None], "null"),
        (upgrade, ["text"], "JSON str"),
        (fail, [old("a")], "see the webhook's log"),
    ],
)
async def test_one_object_that_cannot_be_converted_fails_the_review(serving, convert, objects, told):
    """AD7."""
    async with converting(serving, convert) as asked:
        status, answer = await asked.post("/convert", review(*objects))
        assert status == 200
        assert answer["response"]["convertedObjects"] == []
        assert answer["response"]["result"]["status"] == "Failure"
        assert told in answer["response"]["result"]["message"]
        panics = asked.value("controller_runtime_webhook_panics_total")
        assert panics == (1 if convert is fail else 0)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        review(desired=""),
        review() | {"kind": "AdmissionReview"},
        review() | {"request": None},
        b"[" * 9999,
    ],
)
async def test_what_is_no_conversion_review_is_refused(serving, body):
    """AD7, AD8."""
    async with converting(serving) as asked:
        assert (await asked.post("/convert", body))[0] == 400


async def test_a_path_is_given_once(serving):
    """AD7: two handlers under one path would be a guess."""

    def twice(server):
        server.add_conversion("/convert", upgrade)
        with pytest.raises(ValueError, match="'/convert' is taken"):
            server.add_conversion("/convert", upgrade)

    async with serving(twice) as asked:
        assert (await asked.post("/convert", review()))[0] == 200
