"""The agent API over a real connection: who is let in, what is refused how, and when a reply comes."""

import asyncio

import msgspec
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from runtime.cache.projection import Pod
from runtime.clock import SystemClock
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from trainer_operator.api.names import pod_labels
from trainer_operator.server import agents
from trainer_operator.server.agents import AgentApi, mismatch
from trainer_operator.server.auth import NotAMember, NotKnownYet, Unauthenticated
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import MAX_BEAT_BYTES, Ack, decode
from trainer_operator.topology.members import Directive, MemberId, Members

WORKER = MemberId("worker", 3)
GO = Directive("go:1", "Go", {"epoch": 1})
MARGIN = 5.0
"""Real seconds that a reply which is due at once may take on a busy machine; holds last three times as long."""

BEAT = {
    "v": 1,
    "trainer": "ns/t",
    "tuid": "uid-t",
    "pod": "pod-1",
    "role": "worker",
    "idx": 3,
    "attempt": 2,
    "boot": "b",
    "seq": 1,
}


def pod(*, uid="pod-1", attempt=2, **metadata):
    described = {
        "name": "t-worker-3",
        "namespace": "ns",
        "uid": uid,
        "labels": pod_labels("t", "worker", 3, attempt),
        "ownerReferences": [{"kind": "Trainer", "name": "t", "uid": "uid-t", "controller": True}],
    }
    return msgspec.convert({"metadata": {**described, **metadata}}, Pod)


class Doorkeeper:
    """An authenticator that knows tokens by heart."""

    def __init__(self):
        self.answers = {"Bearer one": pod(), "Bearer old": pod(uid="pod-0", attempt=1)}

    async def pod_of(self, header):
        answer = self.answers.get(header, Unauthenticated("a bearer token is required"))
        if isinstance(answer, Exception):
            raise answer
        return answer


class Case:
    """The API on a real socket."""

    def __init__(self):
        self.clock = SimClock()
        self.members = Members(SystemClock())
        self.doorkeeper = Doorkeeper()
        self.leads = True
        self.registry = CollectorRegistry()
        self.api = AgentApi(
            self.members,
            self.doorkeeper,
            self.clock,
            is_leader=lambda: self.leads,
            term=lambda: 7,
            metrics=TrainerMetrics(self.registry),
        )
        application = web.Application(client_max_size=256 * 1024)
        application.add_routes(self.api.routes())
        self.client = TestClient(TestServer(application))
        self.seq = 0

    async def post(self, *, token="one", data=None, **changes):
        self.seq += 1
        body = data if data is not None else orjson.dumps({**BEAT, "seq": self.seq, **changes})
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = await self.client.post("/v1/agents/beat", data=body, headers=headers)
        async with response:
            return response.status, await response.json(), response.headers


@pytest.fixture
async def case():
    made = Case()
    await made.client.start_server()
    yield made
    await made.client.close()


async def test_a_beat_is_taken_and_answered_with_what_the_member_shall_do(case):
    case.members.declare("uid-t", "trainer", {WORKER: [GO]}, epoch=4)
    status, reply, _ = await case.post(step=5)
    assert status == 200
    assert len(reply.pop("key")) == 64
    assert reply == {
        "epoch": 4,
        "hb": 2.0,
        "term": 7,
        "directives": [{"id": "go:1", "kind": "Go", "args": {"epoch": 1}}],
        "decided": {},
        "close": False,
    }
    assert case.members.view("uid-t")[WORKER].beat.step == 5


async def test_a_replica_that_does_not_lead_sends_agents_on(case):
    """TX3."""
    case.leads = False
    status, body, headers = await case.post()
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "next address" in body["error"]
    assert case.members.uids() == []


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Unauthenticated("the token was refused"), 401),
        (NotAMember("the token is not bound to a pod"), 403),
        (NotKnownYet("pod uid x is not in the cache"), 503),
    ],
    ids=["401", "403", "503"],
)
async def test_who_is_not_let_in_learns_why(case, answer, status):
    """AA3, AA5, AA6."""
    case.doorkeeper.answers["Bearer one"] = answer
    got, body, headers = await case.post()
    assert (got, body["error"]) == (status, str(answer))
    assert headers.get("Retry-After") == ("1" if status == 503 else None)
    assert case.members.uids() == []


async def test_a_request_without_a_token_is_unauthenticated(case):
    status, _, _ = await case.post(token="")
    assert status == 401


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pod", "pod-2"),
        ("tuid", "uid-of-a-neighbour"),
        ("trainer", "ns/neighbour"),
        ("trainer", "elsewhere/t"),
        ("role", "ps"),
        ("idx", 4),
        ("attempt", 3),
        ("attempt", 1),
    ],
)
async def test_a_beat_for_another_member_than_the_token_is_refused_and_counted(case, field, value):
    """AA4."""
    status, body, _ = await case.post(**{field: value})
    assert status == 403
    assert body["error"].startswith(f"{field} is ")
    assert case.api.refused == 1
    assert case.members.uids() == []


def test_a_pod_that_nobody_controls_is_no_member():
    """AA4, TN5."""
    loose = pod(ownerReferences=[{"kind": "Trainer", "name": "t", "uid": "uid-t", "controller": False}])
    assert "tuid" in mismatch(loose, decode(orjson.dumps(BEAT)))
    assert "tuid" in mismatch(pod(ownerReferences=None), decode(orjson.dumps(BEAT)))


def test_a_pod_without_our_labels_is_no_member():
    """AA4."""
    assert mismatch(pod(labels=None), decode(orjson.dumps(BEAT))) is not None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"v":1}', orjson.dumps({**BEAT, "seq": -1})],
    ids=["empty", "cut off", "short", "bounds"],
)
async def test_a_body_that_is_no_beat_is_refused_with_the_reason(case, data):
    """AA7."""
    status, body, _ = await case.post(data=data)
    assert status == 400
    assert body["error"]


async def test_a_body_that_is_too_long_is_refused_unread(case):
    """AA7."""
    status, _, _ = await case.post(data=b"x" * (MAX_BEAT_BYTES + 1))
    assert status == 413


async def test_a_long_body_of_undeclared_length_is_refused_too(case):
    """AA7."""

    async def chunks():
        for _ in range(5):
            yield b"x" * (MAX_BEAT_BYTES // 4)

    status, body, _ = await case.post(data=chunks())
    assert (status, "at most 65536" in body["error"]) == (400, True)


async def test_a_body_that_does_not_arrive_in_time_is_refused(case, monkeypatch):
    """ATK7: so a client that stops in the middle holds nothing."""
    monkeypatch.setattr(agents, "BODY_DEADLINE", 0.05)
    rest = asyncio.Event()

    async def half():
        yield b'{"v": 1'
        await rest.wait()

    status, body, _ = await case.post(data=half())
    rest.set()
    assert (status, body["error"]) == (408, "the beat did not arrive within 0.05 s")
    assert (await case.post())[0] == 200


async def test_a_pod_that_speaks_too_often_is_slowed_down_and_let_in_again(case):
    """AA7."""
    answers = [(await case.post())[0] for _ in range(12)]
    assert answers == [200] * 10 + [429] * 2
    case.clock.advance(0.5)
    assert [(await case.post())[0] for _ in range(2)] == [200, 429]
    case.clock.advance(3600)
    assert [(await case.post())[0] for _ in range(12)] == [200] * 10 + [429] * 2


async def test_one_pod_does_not_use_up_the_share_of_another(case):
    """AA7."""
    for _ in range(11):
        await case.post()
    status, _, _ = await case.post(token="old", pod="pod-0", attempt=1)
    assert status == 200


async def test_an_older_incarnation_gets_no_orders_and_changes_nothing(case):
    """TX7, DT5."""
    await case.post(step=50)
    case.members.declare("uid-t", "trainer", {WORKER: [GO]}, epoch=9)
    status, reply, _ = await case.post(token="old", pod="pod-0", attempt=1, step=7)
    assert (status, reply["epoch"], reply["directives"]) == (200, 9, [])
    assert case.members.view("uid-t")[WORKER].beat.step == 50
    assert case.members.dropped == 1


# -- held replies, in real time: what must come at once comes long before the hold would end


async def hold_until(case, act, **changes):
    """Have a beat held, then act; return the reply and the seconds it took after that."""
    loop = asyncio.get_running_loop()
    got = []

    async def held():
        got.append((await case.post(hold=3 * MARGIN, **changes))[1])
        got.append(loop.time())

    async with TaskScope() as scope:
        before = case.seq
        scope.spawn(held(), name="held beat")
        while case.seq == before or not case.members._trainings["uid-t"].news:  # until it is being held
            await asyncio.sleep(0.005)
        started = loop.time()
        await act()
    return got[0], got[1] - started


async def test_the_first_beat_is_never_held(case):
    async with asyncio.timeout(MARGIN):
        assert (await case.post(hold=15))[0] == 200


async def test_a_beat_without_a_hold_is_answered_at_once(case):
    await case.post()
    async with asyncio.timeout(MARGIN):
        assert (await case.post(hold=0))[0] == 200


async def test_a_held_reply_returns_at_once_with_a_directive(case):
    """MG1."""
    await case.post()

    async def declare():
        case.members.declare("uid-t", "trainer", {WORKER: [GO]}, epoch=2)

    reply, took = await hold_until(case, declare)
    assert [directive["id"] for directive in reply["directives"]] == ["go:1"]
    assert reply["epoch"] == 2
    assert took < MARGIN


async def test_a_held_reply_returns_at_once_on_close(case):
    """AG7."""
    await case.post()

    async def close():
        case.members.close("uid-t")

    reply, took = await hold_until(case, close)
    assert reply["close"] is True
    assert took < MARGIN


async def test_a_held_reply_tells_the_outcome_of_a_checkpoint_that_it_mentions(case):
    """AG7."""
    acks = [{"ckpt": "c", "shard": 0, "copy": 0}]
    await case.post(acks=acks)

    async def decide():
        case.members.decide("uid-t", "c", "commit")

    reply, took = await hold_until(case, decide, acks=acks)
    assert reply["decided"] == {"c": "commit"}
    assert took < MARGIN


async def test_a_held_reply_of_a_trainer_that_is_gone_ends_without_orders(case):
    await case.post()

    async def drop():
        case.members.drop("uid-t")

    reply, took = await hold_until(case, drop)
    assert (reply["directives"], reply["epoch"]) == ([], 0)
    assert took < MARGIN


async def test_orders_for_a_successor_never_reach_the_predecessor_whose_reply_is_held(case):
    """TX7, DT5, FT17: the old pod was cut off, its replacement is there, and both wait for news."""
    await case.post(token="old", pod="pod-0", attempt=1)

    async def replace_and_declare():
        await case.post()
        case.members.declare("uid-t", "trainer", {WORKER: [GO]}, epoch=3)

    reply, _ = await hold_until(case, replace_and_declare, token="old", pod="pod-0", attempt=1)
    assert reply["directives"] == []
    assert reply["key"] == ""
    _, reply, _ = await case.post(token="old", pod="pod-0", attempt=1)
    assert reply["key"] == ""


async def test_the_successor_is_told_at_once_what_the_predecessor_was_not(case):
    """TX7: a reply to the old one does not count as told to the new one."""
    await case.post(token="old", pod="pod-0", attempt=1)

    async def replace_and_declare():
        await case.post()
        case.members.declare("uid-t", "trainer", {WORKER: [GO]}, epoch=3)

    await hold_until(case, replace_and_declare, token="old", pod="pod-0", attempt=1)
    async with asyncio.timeout(MARGIN):
        _, reply, _ = await case.post(hold=15)
    assert [directive["id"] for directive in reply["directives"]] == ["go:1"]


async def test_a_directive_stays_in_the_reply_until_its_result_is_there(case):
    """MG1."""
    case.members.declare("uid-t", "trainer", {WORKER: [GO]})
    for _ in range(2):
        _, reply, _ = await case.post()
        assert [directive["id"] for directive in reply["directives"]] == ["go:1"]
    _, reply, _ = await case.post(results=[{"id": "go:1"}])
    assert reply["directives"] == []


async def test_an_ack_arrives_with_all_its_parts(case):
    """QR3."""
    await case.post(acks=[{"ckpt": "c", "shard": 1, "copy": 2, "bytes": 9, "step": 40}])
    assert case.members.acks("uid-t", "c") == [(WORKER, Ack("c", 1, 2, bytes=9, step=40))]
