"""Parameter servers with histories of their own: a step that is chosen is the same state everywhere (RS3, ND5)."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trainer_operator.trainer.agreement import Offer, agreed_step

SERVERS = 3
SHARDS = st.integers(0, SERVERS - 1)


@given(
    st.lists(st.builds(Offer, st.frozensets(st.integers(1, 30), max_size=6), st.integers(0, 3)), max_size=4),
    st.integers(0, 3),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_a_step_beyond_the_committed_one_is_in_the_memory_of_all(offers, served, since, committed):
    """RS3: QR2 with present for acked; and never behind what is committed."""
    step = agreed_step(offers, served=served, since=since, committed=committed)
    assert step >= committed
    if step > committed:
        assert offers
        assert all(step in offer.steps for offer in offers)
        assert all(offer.ps_epoch >= served or step <= since for offer in offers)


@pytest.mark.parametrize(
    ("others", "step"),
    [
        (Offer(frozenset({10, 20, 30}), 2), 30),
        (Offer(frozenset({10, 20, 30}), 1), 20),
        (Offer(frozenset({10, 30}), 1), 10),
        (Offer(frozenset({40}), 2), 5),
        (Offer(frozenset(), 0), 5),
    ],
    ids=[
        "same history",
        "rolled back to 20 since",
        "no common one up to there",
        "no common one",
        "a new pod",
    ],
)
def test_what_was_rolled_back_behind_a_server_s_back_does_not_count(others, step):
    """RS3, ND5."""
    mine = Offer(frozenset({10, 20, 30}), 2)
    assert agreed_step([mine, others], served=2, since=20, committed=5) == step


@dataclass
class Server:
    """The snapshots of one shard: which history each was made in."""

    ps_epoch: int = 1
    step: int = 0
    ring: dict[int, tuple[int, ...]] = field(default_factory=dict)


class Histories(RuleBasedStateMachine):
    """Asynchronous servers: each goes on alone, hears of rollbacks late or never, and loses its memory."""

    def __init__(self):
        super().__init__()
        self.served, self.since, self.committed = 1, 0, 0
        self.servers = [Server() for _ in range(SERVERS)]
        self.past: tuple[tuple[int, int], ...] = ((1, 0),)
        """The psEpochs that were served, with the step that each began at."""

    def history_at(self, ps_epoch, step):
        """Name the state of a step: the psEpochs that led to it."""
        began = [(number, at) for number, at in self.past if number <= ps_epoch]
        while len(began) > 1 and step <= began[-1][1]:
            began.pop()
        return tuple(number for number, _ in began)

    @rule(shard=SHARDS, steps=st.integers(1, 9))
    def train(self, shard, steps):
        server = self.servers[shard]
        for _ in range(steps if server.ps_epoch else 0):
            server.step += 1
            server.ring[server.step] = self.history_at(server.ps_epoch, server.step)

    @rule(shard=SHARDS)
    def lose(self, shard):
        self.servers[shard] = Server(ps_epoch=0)

    @rule()
    def commit(self):
        """Each server saves in the psEpoch that is served, so all of them have taken it."""
        if all(server.ps_epoch == self.served for server in self.servers):
            self.committed = max(self.committed, min(server.step for server in self.servers))

    @rule(heard=st.lists(st.booleans(), min_size=SERVERS, max_size=SERVERS))
    def recover(self, heard):
        step = self.choose()
        self.served += 1
        self.since = step
        self.past = (*self.past, (self.served, step))
        for server, hears in zip(self.servers, heard, strict=True):
            if hears or server.ps_epoch == 0:  # a new process starts with the present psEpoch
                server.ps_epoch, server.step = self.served, step
                server.ring = {at: state for at, state in server.ring.items() if at <= step}

    def choose(self):
        offers = [Offer(frozenset(server.ring), server.ps_epoch) for server in self.servers]
        return agreed_step(offers, served=self.served, since=self.since, committed=self.committed)

    @invariant()
    def the_chosen_step_is_one_state(self):
        step = self.choose()
        states = {server.ring[step] for server in self.servers if step in server.ring}
        assert step == 0 or len(states) == 1


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
