"""Admission reviews: verdicts, and what is refused before a reviewer sees it."""

import asyncio
import base64

import orjson
import pytest

from runtime.objects import ObjectKey
from runtime.webhook import Allowed, Denied
from runtime.webhook.admission import MAX_CREATE
from runtime.webhook.server import MAX_ADMISSION


def review(obj=None, *, old=None, operation="CREATE", **request):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "operation": operation,
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "name": "a",
            "namespace": "ns",
            "userInfo": {"username": "jane", "groups": None},
            "object": obj,
            "oldObject": old,
            **request,
        },
    }


class Reviewing:
    """Answers with a verdict, or calls a function for it."""

    def __init__(self, verdict=None):
        self.verdict, self.requests = verdict or Allowed(), []

    async def review(self, request):
        self.requests.append(request)
        return self.verdict(request) if callable(self.verdict) else self.verdict


@pytest.fixture
def reviewing(serving):
    """Serve one reviewer under /review."""

    def start(verdict=None):
        reviewer = Reviewing(verdict)
        context = serving(lambda server: server.add_admission("/review", reviewer))
        context.reviewer = reviewer
        return context

    return start


async def test_the_request_is_told_and_the_uid_is_echoed(reviewing):
    """AD7."""
    context = reviewing()
    async with context as asked:
        status, answer = await asked.post("/review", review({"data": {"k": "1"}}, dryRun=True))
    assert (status, answer) == (
        200,
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": "u-1", "allowed": True},
        },
    )
    (request,) = context.reviewer.requests
    assert request.key == ObjectKey("ns", "a")
    assert (request.operation, request.kind.kind, request.dry_run) == ("CREATE", "ConfigMap", True)
    assert request.user_info.username == "jane"
    assert request.decode() == {"data": {"k": "1"}}
    assert request.decode_old() is None


async def test_a_denial_carries_its_message_code_and_warnings(reviewing):
    """AD7."""
    async with reviewing(Denied("too many workers", code=422, reason="Invalid", warnings=["w"])) as asked:
        _, answer = await asked.post("/review", review({}))
    assert answer["response"] == {
        "uid": "u-1",
        "allowed": False,
        "status": {"code": 422, "reason": "Invalid", "message": "too many workers"},
        "warnings": ["w"],
    }


async def test_a_patch_is_sent_as_the_api_server_reads_it(reviewing):
    """AD7."""
    patch = [{"op": "add", "path": "/data/x", "value": "1"}]
    async with reviewing(Allowed(patch=patch)) as asked:
        _, answer = await asked.post("/review", review({}))
    assert answer["response"]["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(answer["response"]["patch"])) == patch


async def test_a_reviewer_that_raises_is_counted_and_answered(reviewing):
    """AD7, C8: 500 inside the review, and the process goes on."""

    def fail(_request):
        raise KeyError("spec")

    async with reviewing(fail) as asked:
        for _ in range(2):
            status, answer = await asked.post("/review", review({}))
            assert status == 200
            assert answer["response"]["uid"] == "u-1"
            assert answer["response"]["status"]["code"] == 500
        assert asked.value("controller_runtime_webhook_panics_total") == 2


async def test_requests_are_measured_under_the_upstream_names(reviewing):
    """C8: from zero on."""
    async with reviewing() as asked:
        name = "controller_runtime_webhook_requests_total"
        assert asked.value(name, webhook="/review", code="200") == 0
        await asked.post("/review", review({}))
        await asked.post("/review", b"")
        assert asked.value(name, webhook="/review", code="200") == 1
        assert asked.value(name, webhook="/review", code="400") == 1
        assert asked.value("controller_runtime_webhook_latency_seconds_count", webhook="/review") == 2
        assert asked.value("controller_runtime_webhook_requests_in_flight", webhook="/review") == 0


@pytest.mark.parametrize(
    ("body", "headers", "status", "told"),
    [
        (b"", {}, 400, "empty"),
        (b"nonsense", {}, 400, "no review"),
        (b"[]", {}, 400, "no review"),
        (b"\xff\xfe{}", {}, 400, "no review"),
        (b"{}", {}, 400, "no request"),
        (b'{"request":{"uid":""}}', {}, 400, "no request"),
        (b'{"request":{"uid":7}}', {}, 400, "no review"),
        (b"[" * 100_000, {}, 400, "no review"),
        (b'{"x":' + b"[" * 3_000_000, {}, 400, "review|nested"),
        (b"{}", {"Content_Type": "text/plain"}, 415, "application/json"),
        (b"{}", {"Content_Encoding": "gzip"}, 415, "compressed"),
        (b" " * (MAX_ADMISSION + 1), {}, 413, f"at most {MAX_ADMISSION}"),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_what_is_no_review_is_refused_in_a_sentence(reviewing, body, headers, status, told):
    """AD7, AD8, ATK7: and the server goes on answering."""
    context = reviewing()
    async with context as asked:
        got, text = await asked.post("/review", body, **headers)
        assert got == status
        assert any(word in text for word in told.split("|"))
        assert context.reviewer.requests == []
        assert (await asked.post("/review", review({})))[0] == 200


@pytest.mark.parametrize("change", [{"kind": "Pod"}, {"apiVersion": "admission.k8s.io/v1beta1"}])
async def test_another_kind_of_review_is_denied_with_its_uid(reviewing, change):
    """AD7."""
    async with reviewing() as asked:
        status, answer = await asked.post("/review", review({}) | change)
    assert (status, answer["response"]["uid"], answer["response"]["status"]["code"]) == (200, "u-1", 400)


async def test_a_review_of_the_size_the_api_server_sends_passes(reviewing):
    """AD7: aiohttp's own limit of 1 MiB would refuse it."""
    context = reviewing()
    large = {"data": {"k": "x" * 3_000_000}}
    async with context as asked:
        status, answer = await asked.post("/review", review(large, old=large, operation="UPDATE"))
    assert (status, answer["response"]["allowed"]) == (200, True)
    assert len(context.reviewer.requests) == 1


async def test_too_large_an_object_is_denied_without_being_decoded(reviewing):
    """AD7."""
    context = reviewing()
    async with context as asked:
        _, answer = await asked.post("/review", review({"data": {"k": "x" * MAX_CREATE}}))
    assert answer["response"]["status"]["code"] == 413
    assert context.reviewer.requests == []


@pytest.mark.parametrize("obj", [b"[" * 5000 + b"]" * 5000, b'"text"', b'{"a":"\\ud800"}'])
async def test_an_object_that_cannot_be_read_is_denied(reviewing, obj):
    """AD8: even if the reviewer did not think of it."""

    def read(request):
        request.decode()
        return Allowed()

    body = orjson.dumps(review(0)).replace(b'"object":0', b'"object":' + obj)
    async with reviewing(read) as asked:
        status, answer = await asked.post("/review", body)
        if status == 200:
            assert answer["response"]["status"]["code"] == 400
            assert answer["response"]["uid"] == "u-1"
        else:
            assert status == 400
        assert asked.value("controller_runtime_webhook_panics_total") == 0


async def test_of_duplicate_keys_all_readers_see_the_same(reviewing):
    """AD8: what is checked is what is used."""
    context = reviewing()
    body = orjson.dumps(review(0)).replace(b'"object":0', b'"object":{"replicas":1,"replicas":9}')
    async with context as asked:
        await asked.post("/review", body)
    request = context.reviewer.requests[0]
    assert request.decode() == request.decode() == {"replicas": 9}


async def test_many_reviews_at_once_are_all_answered(reviewing):
    """ATK7."""
    async with reviewing() as asked:
        answers = []

        async def ask(number):
            answers.append(await asked.post("/review", review({"n": number}, uid=f"u-{number}")))

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(ask(number))
    assert {answer["response"]["uid"] for _, answer in answers} == {f"u-{number}" for number in range(100)}
