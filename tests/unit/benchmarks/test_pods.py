"""The pods that clients are measured with."""

import json

from benchmarks.runtime.pods import PodTemplate
from runtime.cache import Pod
from runtime.cache.transform import StructCodec
from runtime.objects import PODS


def test_they_are_of_the_size_that_the_documents_name():
    """G1: Pod events of about 9 KiB, about a third of it managed fields."""
    body = PodTemplate().body(1, version=1_000_000_000)
    managed = json.dumps(json.loads(body)["metadata"]["managedFields"], separators=(",", ":"))
    assert 9_000 < len(body) < 10_500
    assert 0.28 < len(managed) / len(body) < 0.42


def test_each_is_another_one_and_parts_make_the_same():
    template = PodTemplate()
    before, after = template.parts(7)
    assert before + b"1000000001" + after == template.body(7, version=1_000_000_001)
    first, second = (json.loads(template.body(number, version=5))["metadata"] for number in (1, 2))
    assert first["name"] != second["name"]
    assert first["uid"] != second["uid"]


def test_they_decode_as_what_the_cache_holds():
    pod = StructCodec(PODS, Pod).decode(PodTemplate().body(3, version=12))
    assert (pod.resource_version, pod.is_ready, pod.node_name) == ("12", True, "node-003")
