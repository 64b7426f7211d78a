"""The writer of the audit trail, on an API server in memory at which it dies, fails, and meets another one."""

import asyncio

import pytest

from runtime.client.errors import Forbidden, InternalError, Invalid, NotFound, TransportError, TransportFault
from runtime.fence import LeadershipLost
from runtime.objects import CONFIGMAPS, ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from simulation.apiserver import Api, Killed
from trainer_operator.api.auditlog import DETAIL, AuditLog
from trainer_operator.api.resources import AUDIT_LOGS
from trainer_operator.audit.chain import LONGEST_DETAIL, Entry, verify
from trainer_operator.audit.writer import ANCHORS, NAMESPACE, QUEUE_SIZE, AuditWriter

TEAM = "team-a"


def entry(number, *, what="restart", action="Restart", chain=TEAM, needs="", minute=0, **details):
    return Entry(
        id=f"uid/{what}/{number}",
        time=f"2026-01-01T00:{minute:02}:{number % 60:02}Z",
        actor="trainer-operator",
        action=action,
        object={"apiVersion": "x/v1", "kind": "Trainer", "namespace": chain, "name": "t", "uid": "uid"},
        details={"number": str(number), **details},
        needs=needs,
    )


class Trail:
    """The API server, and what is recorded there."""

    def __init__(self):
        self.clock = SimClock()
        self.api = Api(self.clock)
        self.api.log.put(CONFIGMAPS, {"metadata": {"name": ANCHORS, "namespace": NAMESPACE}})

    def writer(self, **kept):
        return AuditWriter(self.api, self.clock, **kept)

    def objects(self):
        return self.api.log.objects(AUDIT_LOGS)

    def anchors(self):
        return self.api.log.get(CONFIGMAPS, ObjectKey(NAMESPACE, ANCHORS)).get("data") or {}

    def faults(self):
        return [each.fault for each in verify(self.objects(), self.anchors()) if each.fault]

    def ids(self, chain=TEAM):
        return [
            each["spec"]["auditID"]
            for each in self.objects()
            if each["spec"]["objectRef"]["namespace"] == chain
        ]

    def remove(self, sequence):
        self.api.log.delete(AUDIT_LOGS, ObjectKey(NAMESPACE, f"{TEAM}-{sequence:012d}"))


@pytest.fixture
def trail():
    return Trail()


async def write(writer, *entries):
    for each in entries:
        writer.record(each)
    await writer.flush()


async def test_entries_follow_one_another_and_the_objects_are_those_of_the_schema(trail):
    """AU1, AU4, AU5."""
    await write(trail.writer(), entry(1), entry(1, chain="team-b"), entry(2))
    assert [each["metadata"]["name"] for each in trail.objects()] == [
        "team-a-000000000001",
        "team-a-000000000002",
        "team-b-000000000001",
    ]
    assert [AuditLog.read(each).spec.action for each in trail.objects()] == ["Restart"] * 3
    assert trail.faults() == []
    assert trail.anchors()[TEAM].startswith("2:")
    assert LONGEST_DETAIL == DETAIL


async def test_what_is_recorded_is_not_recorded_again_by_this_leader_or_the_next(trail):
    """AU4, RC8: nor does it cost a write."""
    writer = trail.writer()
    await write(writer, entry(1), entry(1))
    writes = len(trail.api.writes)
    writer.record(entry(1))
    assert writer.waiting == 0
    await write(trail.writer(), entry(1))
    assert (trail.ids(), len(trail.api.writes)) == (["uid/restart/1"], writes)


async def test_secrets_and_control_characters_do_not_get_into_a_record(trail):
    """RD2, RD4: the filter of the logs."""
    secret = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
    await write(trail.writer(), entry(1, stacks=f"at\x1b[31m Bearer {secret}\n", token="hunter2hunter2"))
    details = trail.objects()[0]["spec"]["details"]
    assert details["stacks"] == "at[31m Bearer [redacted]\n"
    assert details["token"] == "[redacted]"
    assert trail.faults() == []


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 13))
async def test_a_leader_that_dies_at_any_call_neither_forks_the_chain_nor_loses_an_entry(
    trail, number, after_effect
):
    """AU4, RC8: also while the oldest are removed; the next one is told what is owed."""
    entries = [entry(each) for each in range(1, 6)]
    api = trail.api
    api.kill_at, api.kill_after_effect = number, after_effect
    with pytest.raises(Killed):
        await write(trail.writer(kept=3, slack=1), *entries)
    api.dead, api.kill_at = False, None
    following = trail.writer(kept=3, slack=1)
    for each in entries:
        following.record(each, owed=True)
    await write(following, entry(6))
    assert trail.faults() == []
    numbers = [int(each.rpartition("/")[2]) for each in trail.ids() if each.startswith("uid/restart/")]
    assert numbers == list(range(numbers[0], 7))
    assert {each["spec"]["action"] for each in trail.objects()} <= {"Restart", "Pruned"}
    assert len(trail.objects()) <= 3 + 1 + 1


ERRORS = {
    "server": InternalError("try again", status=500, reason="InternalError"),
    "forbidden": Forbidden("not yet", status=403, reason="Forbidden"),
    "cut off": TransportError("reset", fault=TransportFault.RESET),
    "no namespace": NotFound("no namespace", status=404, reason="NotFound"),
    "fenced": LeadershipLost("not the leader"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_a_failure_is_tried_again_with_pauses_and_keeps_the_order(trail, error):
    """AU10: whoever records something never waits and never hears of it."""
    trail.api.planned.extend([error, None, error])
    writer = trail.writer()
    async with TaskScope() as scope:
        scope.spawn(writer.run(), name="audit")
        for number in (1, 2, 3):
            writer.record(entry(number))
        for _ in range(200):
            await asyncio.sleep(0)
            if not writer.waiting:
                break
            trail.clock.advance(0.5)
        scope.cancel()
    assert (trail.ids(), trail.faults()) == ([f"uid/restart/{n}" for n in (1, 2, 3)], [])


async def test_an_entry_that_is_refused_for_good_blocks_nobody_and_is_told_as_lost(trail):
    """AU10."""
    trail.api.planned.append(Invalid("too long", status=422, reason="Invalid"))
    writer = trail.writer()
    async with TaskScope() as scope:
        scope.spawn(writer.run(), name="audit")
        writer.record(entry(1, what="stacks", action="StackDump"))
        writer.record(entry(1))
        for _ in range(50):
            await asyncio.sleep(0)
        scope.cancel()
    assert [each["spec"]["action"] for each in trail.objects()] == ["RecordsLost", "Restart"]


async def test_two_leaders_make_one_chain_with_each_entry_once(trail):
    """AU4: one that is not fenced in time finds the other's records in its way."""
    old, new = trail.writer(), trail.writer()
    await write(old, entry(1))
    await write(new, entry(2))
    await write(old, entry(2), entry(3))
    await write(new, entry(3), entry(4))
    assert (trail.ids(), trail.faults()) == ([f"uid/restart/{n}" for n in (1, 2, 3, 4)], [])


async def test_a_restart_that_no_leader_came_to_record_is_told_as_lost(trail):
    """AU10: the numbers of restarts have no gaps."""
    await write(trail.writer(), entry(1))
    await write(trail.writer(), entry(4))
    lost = trail.objects()[1]["spec"]
    assert (lost["action"], lost["details"]) == ("RecordsLost", {"count": "2", "what": "Restart 2 to 3"})
    assert trail.faults() == []


async def test_stacks_that_died_with_their_leader_are_told_as_lost(trail):
    """SL4, AU10: they are in nobody's status."""
    needs = "uid/stacks/1"
    await write(trail.writer(), entry(1, needs=needs))
    assert [each["spec"]["action"] for each in trail.objects()] == ["RecordsLost", "Restart"]
    assert trail.objects()[0]["spec"]["details"]["what"] == "stacks of this Restart"


async def test_a_full_queue_takes_no_more_and_says_how_many_it_did_not_take(trail):
    """AU10: what is owed is told again by nobody in this process, and is taken all the same."""
    writer = trail.writer(kept=10_000)
    for number in range(QUEUE_SIZE + 5):
        writer.record(entry(number, what="stacks", action="StackDump"))
    writer.record(entry(1, what="owed", action="Fail"), owed=True)
    assert writer.waiting == QUEUE_SIZE + 1
    await writer.flush()
    (lost,) = [each["spec"] for each in trail.objects() if each["spec"]["action"] == "RecordsLost"]
    assert (lost["sequence"], lost["details"]["count"]) == (1, "5")
    assert trail.ids()[-1] == "uid/owed/1"


async def test_the_oldest_are_removed_after_a_record_says_so_and_what_is_owed_of_them_is_not_told_again(
    trail,
):
    """AU5, AU10: the chain is bounded, and verifies on."""
    await write(trail.writer(kept=5, slack=2), *(entry(number) for number in range(1, 31)))
    assert len(trail.objects()) <= 5 + 2 + 1
    assert trail.faults() == []
    before = trail.ids()
    writer = trail.writer(kept=5, slack=2)
    writer.record(entry(3), owed=True)
    await writer.flush()
    assert trail.ids() == before


async def test_newest_records_that_were_taken_away_leave_a_gap_that_shows(trail):
    """AU5, ATK15: the next leader does not write over it."""
    await write(trail.writer(), entry(1), entry(2), entry(3))
    trail.remove(3)
    assert [fault.sequence for fault in trail.faults()] == [3]
    await write(trail.writer(), entry(4))
    assert trail.objects()[-1]["spec"]["sequence"] == 4 + 1
    assert [fault.sequence for fault in trail.faults()] == [3]


async def test_without_the_anchors_records_are_written_all_the_same(trail):
    trail.api.log.delete(CONFIGMAPS, ObjectKey(NAMESPACE, ANCHORS))
    await write(trail.writer(), entry(1), entry(2))
    assert trail.ids() == ["uid/restart/1", "uid/restart/2"]


async def test_a_writer_that_is_told_nothing_asks_nothing(trail):
    """AU2: an undisturbed Trainer costs no request."""
    async with TaskScope() as scope:
        scope.spawn(trail.writer().run(), name="audit")
        for _ in range(20):
            await asyncio.sleep(0)
            trail.clock.advance(3600)
        scope.cancel()
    assert (trail.api.listed, trail.api.writes) == ([], [])
