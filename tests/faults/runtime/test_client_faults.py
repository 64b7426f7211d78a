"""The client against a server that misbehaves on the wire."""

import asyncio
import time

import pytest

from runtime.client import (
    Client,
    ClientConfig,
    Conflict,
    NotFound,
    PatchKind,
    ResponseMalformed,
    ServiceUnavailable,
    Timeouts,
    TooManyRequests,
    TransportError,
    TransportFault,
    Unauthorized,
)
from runtime.clock import SystemClock
from runtime.errors import RuntimeFault
from runtime.fence import Fence, LeadershipLost
from runtime.objects import CONFIGMAPS, PODS
from runtime.tasks import TaskScope
from runtime.testing.fakeapi import Answer, Drop, FakeApi, Stall

QUICK = Timeouts(connect=0.3, read=0.3, total=0.4, list_total=0.4, watch_start=0.4)
BODY = {"metadata": {"name": "a", "namespace": "ns"}, "data": {"x": "1"}}


@pytest.fixture
async def api():
    async with FakeApi(CONFIGMAPS, PODS) as api:
        yield api


CALLS = {
    "GET": lambda client: client.get(CONFIGMAPS, "a", "ns"),
    "LIST": lambda client: client.list(CONFIGMAPS, "ns"),
    "POST": lambda client: client.create(CONFIGMAPS, BODY),
    "PUT": lambda client: client.replace(CONFIGMAPS, BODY),
    "PATCH": lambda client: client.patch(CONFIGMAPS, "a", {}, namespace="ns"),
    "DELETE": lambda client: client.delete(CONFIGMAPS, "a", "ns"),
    "WATCH": lambda client: client.open_watch(CONFIGMAPS, None, params={}, timeout_seconds=1),
}
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@pytest.mark.parametrize("verb", CALLS)
async def test_a_server_that_never_answers_ends_no_request_kind_late(api, verb):
    """K8, RT2."""
    api.plan(verb, *[Stall()] * 3)
    async with Client(api.config(timeouts=QUICK)) as client:
        started = time.monotonic()
        with pytest.raises(TransportError) as failure:
            await CALLS[verb](client)
        assert failure.value.fault is TransportFault.TIMEOUT
        assert time.monotonic() - started < 4
        assert failure.value.__cause__ is not None


@pytest.mark.parametrize("verb", [verb for verb in CALLS if verb != "WATCH"])
async def test_an_answer_that_stops_half_way_ends_no_request_kind_late(verb):
    """K8, RT2: headers and half a body have come, the rest never does."""
    left, serving = asyncio.Event(), []

    async def stop_half_way(reader, writer):
        serving.append(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"half":'
            )
            await left.wait()
        except asyncio.IncompleteReadError:
            pass  # given up before it had asked
        finally:
            writer.close()
            serving.remove(writer)

    async with await asyncio.start_server(stop_half_way, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with Client(ClientConfig(f"http://{host}:{port}", timeouts=QUICK)) as client:
            async with asyncio.timeout(60):
                with pytest.raises(TransportError) as failure:
                    await CALLS[verb](client)
            assert failure.value.fault is TransportFault.TIMEOUT
        left.set()
        async with asyncio.timeout(60):
            while serving:
                await asyncio.sleep(0.005)


async def test_the_environments_proxies_are_not_asked(api, monkeypatch):
    """K7: a proxy that is meant for the internet would cut watches, and see tokens."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api.log.put(CONFIGMAPS, BODY)
    async with Client(api.config()) as client:
        assert (await client.get(CONFIGMAPS, "a", "ns"))["data"] == {"x": "1"}
        stream = await client.open_watch(
            CONFIGMAPS, None, params={"resourceVersion": "1"}, timeout_seconds=60
        )
        stream.close()
    assert [request.verb for request in api.requests] == ["GET", "WATCH"]


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_that_was_cut_off_is_not_sent_again(api, verb):
    """K2: it may have been done; only its caller knows whether that matters."""
    api.plan(verb, Drop())
    async with Client(api.config()) as client:
        with pytest.raises(TransportError) as failure:
            await CALLS[verb](client)
        assert failure.value.fault is TransportFault.RESET
    assert len(api.asked(verb)) == 1


async def test_a_read_that_was_cut_off_is_sent_again(api):
    """K2."""
    api.log.put(CONFIGMAPS, BODY)
    api.plan("GET", Drop(), Drop())
    async with Client(api.config()) as client:
        assert (await client.get(CONFIGMAPS, "a", "ns"))["data"] == {"x": "1"}


async def test_a_create_that_was_throttled_is_sent_again_when_the_server_says(api):
    """K2, RT40."""
    throttled = Answer(429, {"kind": "Status", "reason": "TooManyRequests"}, {"Retry-After": "1"})
    api.plan("POST", throttled)
    async with Client(api.config()) as client:
        started = time.monotonic()
        made = await client.create(CONFIGMAPS, BODY)
        assert time.monotonic() - started >= 1.0
    assert made["data"] == {"x": "1"}
    assert [request.body["data"] for request in api.asked("POST")] == [{"x": "1"}] * 2


async def test_an_eviction_the_budget_refuses_is_reported_at_once(api):
    """K2."""
    status = {
        "kind": "Status",
        "details": {"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 10},
    }
    api.plan("POST", Answer(429, status))
    async with Client(api.config()) as client:
        with pytest.raises(TooManyRequests) as failure:
            await client.create_subresource(PODS, "a", "eviction", {"metadata": {"name": "a"}}, "ns")
    assert failure.value.retry_after == 10.0
    assert api.asked("POST")[0].path == "/api/v1/namespaces/ns/pods/a/eviction"


async def test_nobody_listening_is_a_failure_to_connect():
    """K4."""
    async with FakeApi(CONFIGMAPS) as api:
        config = api.config(timeouts=QUICK)
    async with Client(config) as client:
        with pytest.raises(TransportError) as failure:
            await client.create(CONFIGMAPS, BODY)
        assert failure.value.fault is TransportFault.CONNECT


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
async def test_an_answer_that_is_no_object_is_named(api, body):
    """K4."""
    api.plan("GET", Answer(200, body))
    async with Client(api.config()) as client:
        with pytest.raises(ResponseMalformed, match="GET /api/v1/namespaces/ns/configmaps/a"):
            await client.get(CONFIGMAPS, "a", "ns")


async def test_a_proxys_page_is_still_one_typed_error(api):
    """K4."""
    api.plan("POST", Answer(503, b"<html>no upstream</html>"))
    async with Client(api.config()) as client:
        with pytest.raises(ServiceUnavailable, match="no upstream"):
            await client.create(CONFIGMAPS, BODY)


async def test_a_refused_token_is_read_again_and_the_request_repeated_once(api, tmp_path):
    """K1, K5: also a write, for it was not processed."""
    token = tmp_path / "token"
    token.write_text("old")
    api.plan("POST", Answer(401, {"kind": "Status", "reason": "Unauthorized"}))
    async with Client(api.config(token_file=str(token))) as client:
        with pytest.raises(NotFound):
            await client.get(CONFIGMAPS, "a", "ns")
        token.write_text("new")
        await client.create(CONFIGMAPS, BODY)
        sent = [request.headers["Authorization"] for request in api.requests]
        assert sent == ["Bearer old", "Bearer old", "Bearer new"]
        api.plan("GET", *[Answer(401)] * 3)
        with pytest.raises(Unauthorized):
            await client.get(CONFIGMAPS, "a", "ns")
        assert len(api.asked("GET")) == 3


async def test_requests_say_who_we_are_and_take_json_compressed(api):
    """K6, K7."""
    async with Client(api.config(user_agent="tester/1")) as client:
        await client.create(CONFIGMAPS, BODY, field_manager="me")
        await client.patch(
            CONFIGMAPS, "a", BODY, namespace="ns", kind=PatchKind.APPLY, field_manager="me", force=True
        )
        with pytest.raises(Conflict):
            await client.replace(CONFIGMAPS, {"metadata": {**BODY["metadata"], "resourceVersion": "1"}})
        with pytest.raises(ValueError, match="names no field manager"):
            await client.patch(CONFIGMAPS, "a", BODY, namespace="ns", kind=PatchKind.APPLY)
    create, apply = api.requests[:2]
    assert create.headers["User-Agent"] == "tester/1"
    assert "gzip" in create.headers["Accept-Encoding"]
    assert create.headers["Accept"] == create.headers["Content-Type"] == "application/json"
    assert create.query == {"fieldManager": "me"}
    assert create.body["kind"] == "ConfigMap"
    assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
    assert apply.query == {"fieldManager": "me", "force": "true"}


async def test_a_delete_carries_its_conditions(api):
    """R6."""
    api.log.put(CONFIGMAPS, BODY)
    async with Client(api.config()) as client:
        await client.delete(
            CONFIGMAPS, "a", "ns", propagation="Background", grace_seconds=0, uid="u", resource_version="2"
        )
    assert api.requests[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "2"},
    }


async def test_a_shut_fence_stops_writes_and_lets_reads_pass(api):
    """L6."""
    api.log.put(CONFIGMAPS, BODY)
    fence = Fence(SystemClock())
    async with Client(api.config(), fence=fence) as client:
        for verb in WRITES:
            with pytest.raises(LeadershipLost):
                await CALLS[verb](client)
        await CALLS["GET"](client)
        await CALLS["LIST"](client)
        fence.open(SystemClock().monotonic() + 60)
        await client.patch(CONFIGMAPS, "a", {"data": {"y": "2"}}, namespace="ns")
    assert [request.verb for request in api.requests] == ["GET", "LIST", "PATCH"]


async def test_a_write_repeated_after_the_fence_has_shut_is_not_sent(api):
    """L6: the fence is asked before each attempt, after all waiting."""
    fence = Fence(SystemClock())
    fence.open(SystemClock().monotonic() + 0.5)
    api.plan("POST", Answer(429, {"kind": "Status"}, {"Retry-After": "1"}))
    async with Client(api.config(), fence=fence) as client:
        with pytest.raises(LeadershipLost):
            await client.create(CONFIGMAPS, BODY)
    assert len(api.asked("POST")) == 1


async def test_a_write_that_outlives_leadership_is_cut_and_says_so(api):
    """L6, RT35."""

    class Ended:
        """A fence whose permission ends while the request is under way."""

        def __init__(self):
            self.checks = 0

        def check(self):
            self.checks += 1
            if self.checks > 1:
                raise LeadershipLost("the lease ran out")

        def time_to_end(self, now):
            return 0.3

    api.plan("POST", Stall())
    async with Client(api.config(), fence=Ended()) as client:
        started = time.monotonic()
        with pytest.raises(LeadershipLost):
            await client.create(CONFIGMAPS, BODY)
        assert time.monotonic() - started < 3


async def test_no_more_requests_are_in_flight_than_allowed(api):
    """K3."""
    api.plan("GET", *[Stall()] * 8)
    async with Client(api.config(in_flight=2)) as client, TaskScope() as scope:
        for number in range(8):
            scope.spawn(CALLS["GET"](client), name=f"get {number}")
        await asyncio.sleep(0.3)
        assert len(api.asked("GET")) == 2
        scope.cancel()


async def test_a_client_that_is_not_open_says_how_to_open_it(api):
    """K5."""
    client = Client(api.config())
    with pytest.raises(RuntimeFault, match="async with"):
        await client.get(CONFIGMAPS, "a", "ns")
    await client.open()
    await client.open()
    await client.close()
    await client.close()


async def test_a_stopping_client_leaves_no_request_behind(api):
    """PY4: cancellation is passed on."""
    api.plan("GET", Stall())
    async with Client(api.config()) as client, TaskScope() as scope:
        task = scope.spawn(CALLS["GET"](client), name="get")
        await asyncio.sleep(0.1)
        task.cancel()
    assert task.cancelled()
