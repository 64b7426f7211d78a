"""Who holds what a member restores, and where its bytes came from (RS2)."""

import pytest
from prometheus_client import CollectorRegistry

from simulation.cluster import START, trainer
from simulation.views import OTHER, SERVER, WORKER, active, agent, observed, pod, with_status
from trainer_operator.api.status import ServerPhase, TrainerStatus
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import Restored
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import sources
from trainer_operator.trainer.directives import directives_of
from trainer_operator.trainer.draft import Draft, EmitEvent

CKPT = "000000000040-e1-00ab"
NEWCOMER = MemberId("worker", 2)
SECOND = MemberId("ps", 1)


def draft(agents, *, members="worker:0-2", servers=0, **changes):
    status = active(members, world=3, epoch=2)
    status.membership.restore_step, status.membership.restore_from = 40, CKPT
    if servers:
        status.membership.ps_phase, status.membership.ps_epoch = ServerPhase.SERVING, 1
    for name, value in changes.items():
        setattr(status.membership, name, value)
    pods = [(member, pod(member)) for member in (WORKER, OTHER, NEWCOMER, SERVER, SECOND)]
    of = with_status(trainer(servers=servers, workers=3), status)
    return Draft(observed(of=of, pods=pods, agents=agents), status.model_copy(deep=True))


def ready(member, *, port=0, holds=(), **changes):
    changes = {"epoch": 1, "prepared": 2, "proc": "none", "phase": "init", **changes}
    return agent(member, chunk_port=port, holds=list(holds), **changes)


def told(made):
    return {
        member: directive.args["peers"]
        for member, listed in directives_of(made).items()
        for directive in listed
        if directive.kind == "Go"
    }


def test_a_member_is_told_who_holds_what_it_restores_and_never_itself():
    """RS2."""
    held = [f"{CKPT}/0"]
    agents = [ready(WORKER, port=4000, holds=held), ready(OTHER, port=4001, holds=held), ready(NEWCOMER)]
    first, second = ({"address": "10.0.0.1", "port": port} for port in (4000, 4001))
    assert told(draft(agents)) == {WORKER: [second], OTHER: [first], NEWCOMER: [first, second]}


@pytest.mark.parametrize(
    "other",
    [
        {"holds": ["000000000020-e1-00ab/0"], "port": 4000},
        {"holds": [CKPT], "port": 4000},
        {"holds": [f"{CKPT}/x"], "port": 4000},
        {"holds": [f"{CKPT}/0"]},
        {"holds": [f"{CKPT}/0"], "port": 4000, "attempt": 7},
    ],
    ids=["another checkpoint", "no shard", "malformed", "serves nothing", "another attempt"],
)
def test_who_has_nothing_to_give_is_not_named(other):
    """RS2, DT5."""
    made = draft([ready(WORKER, **other), ready(NEWCOMER)], members="worker:0,2")
    assert sources.peers_for(sources.holders(made, CKPT), NEWCOMER, rank=1) == []


def test_without_a_checkpoint_nobody_is_named():
    """RS2."""
    agents = [ready(WORKER, port=4000, holds=["/0"]), ready(OTHER), ready(NEWCOMER)]
    assert told(draft(agents, restore_from="")) == {WORKER: [], OTHER: [], NEWCOMER: []}


def test_a_running_member_is_told_nothing_new_when_others_have_restored():
    """TX: what others hold meanwhile would wake every reply that is held."""
    agents = [ready(WORKER, port=4000, holds=[f"{CKPT}/0"]), ready(OTHER, proc="running", epoch=2)]
    assert told(draft(agents, members="worker:0-1"))[OTHER] == []


def test_a_server_asks_for_its_own_shard_and_others_for_any():
    """RS5: a shard of another server is of no use to it."""
    agents = [ready(SERVER, port=4000, holds=[f"{CKPT}/0"]), ready(SECOND, port=4001, holds=[f"{CKPT}/1"])]
    known = sources.holders(draft(agents, members="worker:0-1;ps:0-1", servers=2), CKPT)
    third = {"address": "10.0.0.1", "port": 4001}
    assert sources.peers_for(known, MemberId("ps", 3), rank=1) == [third]
    assert sources.peers_for(known, MemberId("ps", 3), rank=2) == []
    assert len(sources.peers_for(known, WORKER, rank=5)) == 2


def test_many_holders_share_the_load_and_the_directive_stays_small():
    """RS2, MG1: eight of a thousand, not the same ones for all."""
    known = {0: [(MemberId("worker", n), {"address": "a", "port": n + 1}) for n in range(1000)]}
    asked = [
        each["port"]
        for rank in range(125)
        for each in sources.peers_for(known, MemberId("worker", 2000 + rank), rank=rank + 1000)
    ]
    assert len(asked) == len(set(asked)) == 1000


def restored(member, **changes):
    report = Restored(**{"ckpt": CKPT, **changes})
    return agent(member, epoch=2, prepared=2, restored=report)


def test_where_the_bytes_came_from_is_recorded_once_when_all_train():
    """RS2, ST7: status, an Event, and a metric."""
    agents = [restored(WORKER, own=5_000_000), restored(OTHER, peer=3_000_000, store=2_000_000)]
    early = draft([*agents, ready(NEWCOMER)])
    sources.follow(early)
    assert early.status.last_restore is None
    made = draft([*agents, agent(NEWCOMER, epoch=2, prepared=2)])
    sources.follow(made)
    found = made.status.last_restore
    assert (found.checkpoint, found.step, found.epoch, found.members) == (CKPT, 40, 2, 2)
    assert (found.own_bytes, found.peer_bytes, found.store_bytes) == (5_000_000, 3_000_000, 2_000_000)
    (event,) = [action for action in made.actions if isinstance(action, EmitEvent)]
    assert event.message == (
        f"2 members read checkpoint {CKPT}: 5.0 MB from their own pods, 3.0 MB from other members, 2.0 MB from the store"
    )
    again = Draft(made.observed, made.status)
    sources.follow(again)
    assert again.actions == []
    registry = CollectorRegistry()
    metrics = TrainerMetrics(registry)
    metrics.stored("ns", TrainerStatus(), made.status)
    metrics.stored("ns", made.status, made.status)
    labels = {"namespace": "ns", "source": "peer"}
    assert registry.get_sample_value("trainer_restored_bytes_total", labels) == 3_000_000


def test_a_report_of_another_checkpoint_is_not_counted():
    """TX7."""
    made = draft([restored(m, ckpt="000000000020-e1-00ab", store=1) for m in (WORKER, OTHER, NEWCOMER)])
    sources.follow(made)
    assert made.status.last_restore is None


def test_a_peer_that_sent_damage_is_named():
    """RS2: a mismatch is reported."""
    made = draft(
        [restored(WORKER, own=1), restored(OTHER, store=1, liars=["10.0.0.9:4000"]), restored(NEWCOMER)]
    )
    sources.follow(made)
    warning = next(a for a in made.actions if isinstance(a, EmitEvent) and a.type == "Warning")
    assert warning.reason == "PeerSentDamage"
    assert "10.0.0.9:4000 (noticed by worker-1)" in warning.message
    assert made.observed.now == START
