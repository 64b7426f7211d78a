"""Equal parts of cached objects are kept once (S2, G3)."""

import tracemalloc

import msgspec
import orjson

from benchmarks.runtime.pods import PodTemplate
from runtime.cache import METADATA_ONLY, Node, Pod
from runtime.cache.projection import Projection
from runtime.cache.sharing import Pool
from runtime.cache.transform import StructCodec
from runtime.objects import NODES, PODS


class _Part(msgspec.Struct, frozen=True):
    name: str
    inner: "_Part | None" = None


def _pods(count: int) -> list[Pod]:
    template, codec = PodTemplate(), StructCodec(PODS, Pod)
    return [codec.decode(template.body(number, version=number + 1)) for number in range(count)]


def test_two_pods_of_one_owner_share_what_they_have_alike():
    """S2: the owner, the values of labels, the template's part of the spec."""
    pods = _pods(101)
    first, second = pods[0], pods[100]  # on the same node
    assert first.metadata.owner_references is not None
    assert second.metadata.owner_references is not None
    assert first.metadata.owner_references[0] is second.metadata.owner_references[0]
    assert first.spec is second.spec
    assert first.labels["app"] is second.labels["app"]
    assert first.labels is not second.labels


def test_sharing_changes_no_value():
    """S2: what is cached equals what a plain decoder makes of the same bytes."""
    template = PodTemplate()
    plain = msgspec.json.Decoder(Pod)
    for number, pod in enumerate(_pods(40)):
        assert pod == plain.decode(template.body(number, version=number + 1))


def test_an_object_without_parts_is_left_alone():
    """PY9: defaults that all objects have in common are not written to."""
    bare = orjson.dumps({"metadata": {"name": "x", "labels": None, "ownerReferences": None}})
    for resource, projection in ((PODS, Pod), (NODES, Node), (PODS, METADATA_ONLY)):
        codec = StructCodec[Projection](resource, projection)
        assert codec.decode(bare).name == "x"
    assert Pod() == msgspec.json.decode(b"{}", type=Pod)


def test_a_new_part_has_its_own_parts_shared_too():
    pool = Pool()
    first = pool.part(_Part("a", _Part("b")))
    second = pool.part(_Part("c", _Part("b")))
    assert first.inner is second.inner
    assert pool.part(_Part("c", _Part("b"))) is second


def test_equal_fields_of_different_types_stay_apart():
    class _Other(msgspec.Struct, frozen=True):
        name: str
        inner: _Part | None = None

    pool = Pool()
    pool.part(_Part("a"))
    assert type(pool.part(_Other("a"))) is _Other


def test_a_full_pool_forgets_and_goes_on():
    """G10: values that never come again do not add up."""
    pool = Pool(capacity=10)
    for number in range(1_000):
        assert pool.text(f"value-{number}") == f"value-{number}"
        assert len(pool) <= 10
    last = "value-{}"
    assert pool.text(last.format(999)) is pool.text(last.format(999))


def test_a_projected_pod_weighs_less_than_four_kib():
    """G3: with names, uids, addresses, notes and start times of its own; 9 KiB of JSON."""
    count, template, codec = 1_000, PodTemplate(), StructCodec(PODS, Pod)
    bodies = [template.body(number, version=number + 1) for number in range(count)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pods = [codec.decode(body) for body in bodies]
        each = (tracemalloc.get_traced_memory()[0] - before) / len(pods)
    finally:
        tracemalloc.stop()
    assert each < 4096
