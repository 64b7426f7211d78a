"""Members: which beat counts, what a reply says, and when a held one is let go."""

import asyncio

import pytest

from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from runtime.testing.simloop import simulated
from simulation.views import OTHER, WORKER, beat, exited
from trainer_operator.topology.beat import Ack, DirectiveResult, janitor_of
from trainer_operator.topology.members import ENDED, JANITOR, Directive, MemberId, Members

UID = "uid-t"
GO = Directive("go:1", "Go", {"epoch": 1})
PREPARE = Directive("prepare:1", "Prepare", {"epoch": 1})


@pytest.fixture
def clock():
    return SimClock()


@pytest.fixture
def members(clock):
    return Members(clock)


def ids(members, member=WORKER):
    return [directive["id"] for directive in members.reply(UID, member, term=0)["directives"]]


# -- which beat counts


@pytest.mark.parametrize(
    "older",
    [
        {"attempt": 1, "boot": "b", "run": 2, "seq": 5},
        {"attempt": 1, "boot": "b", "run": 2, "seq": 4},
        {"attempt": 1, "boot": "b", "run": 1, "seq": 9},
        {"attempt": 0, "boot": "a", "run": 9, "seq": 9},
        {"attempt": 0, "boot": "b", "run": 9, "seq": 9},
    ],
    ids=["repeated", "lower seq", "older run", "older attempt", "older attempt of the same boot"],
)
def test_an_older_beat_is_dropped_and_counted(members, older):
    """TX7."""
    assert members.accept(beat(attempt=1, boot="b", run=2, seq=5, step=50))
    assert not members.accept(beat(step=10, **older))
    assert members.dropped == 1
    assert members.view(UID)[WORKER].beat.step == 50


@pytest.mark.parametrize(
    "newer",
    [
        {"attempt": 0, "boot": "b", "run": 1, "seq": 6},
        {"attempt": 0, "boot": "b", "run": 2, "seq": 6},
        {"attempt": 1, "boot": "c", "run": 0, "seq": 0},
        {"attempt": 0, "boot": "c", "run": 0, "seq": 0},
    ],
    ids=["next beat", "next run", "next attempt", "next boot"],
)
def test_a_newer_beat_is_taken(members, newer):
    """TX7."""
    members.accept(beat(attempt=0, boot="b", run=1, seq=5))
    assert members.accept(beat(step=77, **newer))
    assert members.view(UID)[WORKER].beat.step == 77


def test_a_boot_that_was_replaced_never_comes_back(members):
    """TX7, FT07."""
    members.accept(beat(boot="a", seq=1))
    members.accept(beat(boot="b", seq=1))
    assert not members.accept(beat(boot="a", seq=2))
    assert members.view(UID)[WORKER].beat.boot == "b"


def test_a_new_boot_starts_with_no_results_of_the_old_one(members):
    members.accept(beat(boot="a", results=[DirectiveResult("go:1")]))
    members.accept(beat(boot="b", seq=1))
    assert members.view(UID)[WORKER].results == {}


def test_ages_count_from_the_moment_of_the_beat(members, clock):
    """TX7: ages travel, clocks never."""
    members.accept(beat(step_age_ms=1500))
    clock.advance(10)
    view = members.view(UID)[WORKER]
    assert (view.age, view.step_age) == (10.0, 11.5)
    clock.jump_wall_clock(-3600)
    assert members.view(UID)[WORKER].age == 10.0


def test_an_old_beat_does_not_make_a_silent_member_young(members, clock):
    """TX7."""
    members.accept(beat(seq=5))
    clock.advance(30)
    members.accept(beat(seq=4))
    assert members.view(UID)[WORKER].age == 30.0


def test_members_of_other_trainers_are_kept_apart(members):
    members.accept(beat(tuid="one", step=1))
    members.accept(beat(tuid="two", step=2))
    assert members.view("one")[WORKER].beat.step == 1
    assert members.view("two")[WORKER].beat.step == 2
    assert members.view("three") == {}


@pytest.mark.parametrize(
    ("changes", "running", "done", "crashed"),
    [
        ({"proc": "none"}, False, False, False),
        ({"proc": "starting"}, True, False, False),
        ({"proc": "running"}, True, False, False),
        (exited(0), False, True, False),
        (exited(1), False, False, True),
        (exited(0, sig=9), False, False, True),
        ({"proc": "exited", "exit": None}, False, False, True),
    ],
)
def test_a_view_tells_how_the_process_is(members, changes, running, done, crashed):
    members.accept(beat(**changes))
    view = members.view(UID)[WORKER]
    assert (view.running, view.done, view.crashed) == (running, done, crashed)


def test_the_length_of_a_start_from_a_checkpoint_is_remembered(members, clock):
    """SL1: from the process's start to its first step; a start from nothing teaches nothing."""
    members.accept(beat(run=1, seq=1, phase="init", phase_age_ms=1000))
    clock.advance(50)
    members.accept(beat(run=1, seq=2, phase="train", step=1))
    assert members.view(UID)[WORKER].start is None
    members.accept(beat(run=2, seq=3, phase="init", phase_age_ms=2000, step=1))
    clock.advance(20)
    members.accept(beat(run=2, seq=4, phase="init", phase_age_ms=22_000, step=1))
    clock.advance(10)
    members.accept(beat(run=2, seq=5, phase="train", phase_age_ms=1000, step=2))
    assert members.view(UID)[WORKER].start == pytest.approx(31.0)
    members.accept(beat(run=3, seq=6, phase="init", step=2))
    assert members.view(UID)[WORKER].start == pytest.approx(31.0)


# -- intervals and grace


@pytest.mark.parametrize(("agents", "seconds"), [(0, 2.0), (1, 2.0), (30, 3.0), (300, 15.0)])
def test_the_interval_grows_with_the_agents_between_two_limits(clock, agents, seconds):
    """TX1."""
    members = Members(clock, agents_per_second=10)
    for index in range(agents):
        members.accept(beat(idx=index))
    assert members.heartbeat == seconds
    assert members.reply(UID, WORKER, term=0)["hb"] == seconds


def test_the_interval_shrinks_when_agents_are_forgotten(clock):
    """TX1."""
    members = Members(clock, agents_per_second=10)
    for index in range(100):
        members.accept(beat(idx=index))
        members.accept(beat(idx=index, seq=2))
    assert members.heartbeat == 10.0
    for index in range(40):
        members.forget_member(UID, MemberId(WORKER.role, index))
        members.forget_member(UID, MemberId(WORKER.role, index))
    assert members.heartbeat == 6.0
    members.drop(UID)
    members.drop(UID)
    assert members.heartbeat == 2.0


def test_taking_leadership_starts_the_grace_anew(members, clock):
    """TX4."""
    clock.advance(500)
    members.restart_grace()
    assert members.since == clock.monotonic()


# -- news


def test_listeners_hear_of_changes_and_not_of_mere_progress(members):
    heard = []
    members.on_news(lambda uid, name: heard.append((uid, name)))
    members.accept(beat(seq=1, step=1))
    members.accept(beat(seq=2, step=2, step_age_ms=5, samples=64, metrics={"loss": 1.0}))
    assert heard == [(UID, "default/t")]
    members.accept(beat(seq=3, step=2, phase="checkpoint"))
    assert len(heard) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"boot": "other", "seq": 0},
        {"run": 1},
        {"proc": "exited"},
        {"phase": "eval"},
        {"prepared": 2},
        {"epoch": 2},
        {"ps_epoch": 1},
        {"data_epoch": 1},
        {"acks": [Ack("c", 0, 0)]},
        {"have": [5]},
        {"results": [DirectiveResult("d")]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_change_that_may_need_a_decision_is_news(members, change):
    """TX6."""
    members.accept(beat(seq=1))
    heard = []
    members.on_news(lambda uid, name: heard.append(uid))
    members.accept(beat(**{"seq": 2, **change}))
    assert heard == [UID]


def test_a_repeated_result_is_news_once(members):
    """MG1."""
    heard = []
    members.accept(beat(seq=1, results=[DirectiveResult("d")]))
    members.on_news(lambda uid, name: heard.append(uid))
    members.accept(beat(seq=2, results=[DirectiveResult("d")]))
    assert heard == []


def test_a_dropped_beat_is_no_news(members):
    """TX7."""
    members.accept(beat(attempt=1, seq=5))
    heard = []
    members.on_news(lambda uid, name: heard.append(uid))
    members.accept(beat(attempt=0, seq=9, phase="eval"))
    assert heard == []


def test_stacks_are_kept_only_while_they_are_asked_for(members):
    """SL4: they are long, and of many members."""
    dump = Directive("look:1", "DumpStacks", {})
    members.declare(UID, "trainer", {WORKER: [dump]})
    members.accept(beat(seq=1, results=[DirectiveResult("look:1", value={"stacks": "…"})]))
    members.accept(beat(seq=2))
    assert set(members.view(UID)[WORKER].results) == {"look:1"}
    members.declare(UID, "trainer", {})
    members.accept(beat(seq=3))
    assert members.view(UID)[WORKER].results == {}


def test_old_results_are_kept_within_a_bound(members):
    for number in range(200):
        members.accept(beat(seq=number, results=[DirectiveResult(f"d{number}")]))
    results = members.view(UID)[WORKER].results
    assert len(results) <= 66
    assert "d199" in results


def test_the_result_of_a_directive_that_still_stands_is_never_forgotten(members):
    """MG1: else it would be carried out twice."""
    members.declare(UID, "trainer", {WORKER: [GO]})
    members.accept(beat(seq=0, results=[DirectiveResult(GO.id)]))
    for number in range(1, 200):
        members.accept(beat(seq=number, results=[DirectiveResult(f"d{number}")]))
    assert ids(members) == []


# -- replies


def test_a_reply_of_an_unknown_trainer_orders_nothing(members):
    assert members.reply("nobody", WORKER, term=3) == {
        "epoch": 0,
        "hb": 2.0,
        "term": 3,
        "directives": [],
        "decided": {},
        "close": False,
    }


def test_a_directive_is_repeated_until_its_result_arrives(members):
    """MG1."""
    members.accept(beat(seq=1))
    members.declare(UID, "trainer", {WORKER: [PREPARE, GO]}, epoch=1)
    assert ids(members) == ids(members) == ["prepare:1", "go:1"]
    members.accept(beat(seq=2, results=[DirectiveResult("prepare:1")]))
    assert ids(members) == ["go:1"]
    assert members.reply(UID, WORKER, term=0)["epoch"] == 1


def test_a_failed_result_ends_the_repetition_too(members):
    """MG1."""
    members.declare(UID, "trainer", {WORKER: [GO]})
    members.accept(beat(results=[DirectiveResult(GO.id, ok=False, error="past")]))
    assert ids(members) == []


def test_a_source_replaces_its_own_directives_only(members):
    members.accept(beat())
    members.declare(UID, "trainer", {WORKER: [PREPARE]})
    members.declare(UID, "checkpoint/c", {WORKER: [GO]})
    members.declare(UID, "trainer", {})
    assert ids(members) == ["go:1"]


def test_a_member_is_told_only_of_checkpoints_that_it_mentions(members):
    """AG7."""
    members.accept(beat(acks=[Ack("one", 0, 0)]))
    members.decide(UID, "one", "commit")
    members.decide(UID, "two", "abort")
    assert members.reply(UID, WORKER, term=0)["decided"] == {"one": "commit"}


def test_decisions_are_kept_within_a_bound(members):
    members.accept(beat(acks=[Ack(f"c{n}", 0, 0) for n in range(100)]))
    for number in range(100):
        members.decide(UID, f"c{number}", "commit")
    decided = members.reply(UID, WORKER, term=0)["decided"]
    assert list(decided) == [f"c{number}" for number in range(68, 100)]


def test_acks_are_found_by_checkpoint_with_the_member_that_reports_them(members):
    """QR3."""
    members.accept(beat(WORKER, acks=[Ack("c", 0, 0), Ack("d", 0, 0)]))
    members.accept(beat(OTHER, acks=[Ack("c", 0, 1)]))
    assert members.acks(UID, "c") == [(WORKER, Ack("c", 0, 0)), (OTHER, Ack("c", 0, 1))]
    assert members.acks("nobody", "c") == []


def test_a_reply_is_told_once_and_is_news_again_when_it_changes(members):
    members.accept(beat())
    reply = members.reply(UID, WORKER, term=0)
    assert members.mark_told(UID, WORKER, reply)
    assert not members.mark_told(UID, WORKER, members.reply(UID, WORKER, term=0))
    members.declare(UID, "trainer", {WORKER: [GO]})
    assert members.mark_told(UID, WORKER, members.reply(UID, WORKER, term=0))


def test_another_incarnation_has_been_told_nothing(members):
    members.accept(beat(boot="a"))
    members.mark_told(UID, WORKER, members.reply(UID, WORKER, term=0))
    members.accept(beat(boot="b", attempt=1))
    assert members.mark_told(UID, WORKER, members.reply(UID, WORKER, term=0))


def test_close_is_told_to_every_member(members):
    """AG7."""
    members.accept(beat())
    members.close(UID)
    assert members.reply(UID, WORKER, term=0)["close"] is True


def test_closing_what_is_unknown_leaves_nothing_behind(members):
    members.close("nobody")
    members.drop("nobody")
    members.forget_member("nobody", WORKER)
    assert members.uids() == []


def test_a_dropped_trainer_is_unknown(members):
    members.accept(beat())
    members.declare(UID, "trainer", {WORKER: [GO]}, epoch=4)
    members.drop(UID)
    assert members.uids() == []
    assert members.view(UID) == {}
    assert ids(members) == []


def test_agents_of_a_trainer_that_is_gone_are_told_to_end_and_are_counted_nowhere(members, clock):
    """AG7, DT4: one that waits for a decision would keep its pod for the whole grace."""
    for member in (WORKER, OTHER):
        members.accept(beat(member))
    members.end(UID)
    assert not members.accept(beat(seq=2))
    assert members.reply(UID, WORKER, term=0)["close"] is True
    assert members.uids() == []
    clock.advance(1000)
    assert not members.mass_silence(30)
    assert members.accept(beat(tuid="another"))
    assert members.reply("another", WORKER, term=0)["close"] is False


def test_only_so_many_trainers_that_are_gone_are_remembered(members):
    for number in range(ENDED + 1):
        members.end(f"uid-{number}")
    assert members.accept(beat(tuid="uid-0"))
    assert not members.accept(beat(tuid=f"uid-{ENDED}"))


def test_a_forgotten_member_leaves_the_others_alone(members):
    members.accept(beat(WORKER))
    members.accept(beat(OTHER))
    members.declare(UID, "trainer", {WORKER: [GO], OTHER: [GO]})
    members.forget_member(UID, OTHER)
    assert set(members.view(UID)) == {WORKER}
    assert (ids(members, WORKER), ids(members, OTHER)) == (["go:1"], [])


# -- held replies


async def held_for(members, act, *, member=WORKER, hold=10.0):
    """Hold a reply, do something half a second later, and return how long it was held."""
    loop = asyncio.get_running_loop()
    members.accept(beat(WORKER))
    members.accept(beat(OTHER))
    started, ended = loop.time(), []

    async def wait():
        await members.wait_news(UID, member, hold=hold)
        ended.append(loop.time() - started)

    async with TaskScope() as scope:
        scope.spawn(wait(), name="held reply")
        await asyncio.sleep(0.5)
        act()
    return ended[0]


@simulated
async def test_a_hold_ends_by_itself():
    members = Members(SimClock())
    assert await held_for(members, lambda: None) == 10.0


@simulated
async def test_a_directive_wakes_the_hold_of_its_member():
    members = Members(SimClock())
    assert await held_for(members, lambda: members.declare(UID, "trainer", {WORKER: [GO]})) == 0.5


@simulated
async def test_a_directive_for_another_member_wakes_nobody():
    members = Members(SimClock())
    assert await held_for(members, lambda: members.declare(UID, "trainer", {OTHER: [GO]})) == 10.0


@simulated
async def test_the_same_directives_again_wake_nobody():
    members = Members(SimClock())
    members.declare(UID, "trainer", {WORKER: [GO]})
    assert await held_for(members, lambda: members.declare(UID, "trainer", {WORKER: [GO]})) == 10.0


@simulated
async def test_a_directive_that_is_withdrawn_wakes_its_member():
    members = Members(SimClock())
    members.declare(UID, "trainer", {WORKER: [GO]})
    assert await held_for(members, lambda: members.declare(UID, "trainer", {})) == 0.5


@simulated
async def test_a_decided_checkpoint_wakes_once():
    members = Members(SimClock())
    assert await held_for(members, lambda: members.decide(UID, "c", "commit")) == 0.5
    members = Members(SimClock())
    members.decide(UID, "c", "commit")
    assert await held_for(members, lambda: members.decide(UID, "c", "commit")) == 10.0


@simulated
async def test_close_and_drop_wake_every_hold():
    """AG7."""
    members = Members(SimClock())
    assert await held_for(members, lambda: members.close(UID)) == 0.5
    members = Members(SimClock())
    assert await held_for(members, lambda: members.drop(UID)) == 0.5


def test_an_agent_of_a_replaced_pod_still_tells_that_its_node_lives(clock, members):
    """ND4, FT16: its beat changes nothing else, but it is not silence."""
    members.accept(beat(attempt=1, pod="new"))
    clock.advance(100)
    assert not members.accept(beat(attempt=0, pod="old"))
    assert (members.silence(["new"]), members.silence(["old"]), members.silence(["new", "old"])) == (
        100,
        0,
        0,
    )


def test_silence_counts_from_our_lead_on(clock, members):
    """ND4, TX4: what another leader heard is not known."""
    clock.advance(50)
    members.restart_grace()
    clock.advance(5)
    assert members.silence(["never heard"]) == 5
    assert members.silence([]) == 5


def test_how_long_a_directive_has_been_declared_is_known(clock, members):
    """ND6: whoever waits for it to be done can give up."""
    members.accept(beat())
    members.declare(UID, "trainer", {WORKER: (GO,)})
    clock.advance(3)
    members.declare(UID, "trainer", {WORKER: (GO, PREPARE)})
    clock.advance(4)
    members.declare(UID, "checkpoint", {WORKER: (Directive("save", "Checkpoint", {}),)})
    assert members.view(UID)[WORKER].asked == {GO.id: 7, PREPARE.id: 4, "save": 0}
    members.declare(UID, "trainer", {})
    assert members.view(UID)[WORKER].asked == {"save": 0}


def test_a_janitor_is_no_member_and_stays_when_the_members_are_told_to_end(members):
    """AG7: it comes when they have gone."""
    assert members.accept(beat())
    assert members.accept(beat(role=JANITOR.role, idx=JANITOR.index, pod="uid-janitor"))
    work = Directive("store:collect:x", "Store", {"op": "collect"})
    members.declare(janitor_of(UID), "checkpoint/x", {JANITOR: [work]})
    members.close(UID)
    assert set(members.view(UID)) == {WORKER}
    assert members.reply(UID, WORKER, term=0)["close"]
    reply = members.reply(janitor_of(UID), JANITOR, term=0)
    assert ([each["id"] for each in reply["directives"]], reply["close"]) == ([work.id], False)
    assert members.declared(janitor_of(UID), JANITOR) == [work]


# -- the key of an epoch


def test_each_epoch_has_a_key_of_its_own_that_all_its_members_are_told(members):
    """FT17: a pass once declared keeps the key, the next epoch has another one, and so has another training."""
    for member in (WORKER, OTHER):
        members.accept(beat(member))

    def keys(uid=UID):
        return {members.reply(uid, member, term=0)["key"] for member in (WORKER, OTHER)}

    assert keys() == {""}
    seen = set()
    for epoch in (1, 1, 2, 2):
        members.declare(UID, "trainer", {}, epoch=epoch)
        members.declare(UID, "checkpoint", {})
        (key,) = keys()
        assert len(key) == 64
        seen.add(key)
    assert len(seen) == 2
    members.declare("another", "trainer", {}, epoch=2)
    assert keys("another").isdisjoint(seen)
