"""A Trainer whose checkpoints go with it: what holds it, what lets it go, and what it says meanwhile."""

import pytest

from runtime.client.errors import Forbidden
from runtime.clock import format_time
from runtime.objects import PODS, ObjectKey
from simulation.world import KEY, Operator, World, one_pass
from trainer_operator.api.resources import TRAINERS
from trainer_operator.trainer.deletion import (
    FINALIZER,
    LONGEST_RETRY,
    PATIENCE,
    Facts,
    concerns,
    next_act,
    order,
    retry_after,
)

NAME = "t-janitor-0"
HELD = {"held": True, "deleting": True, "wants": True}


@pytest.mark.parametrize(
    ("facts", "act"),
    [
        ({"held": False, "deleting": False, "wants": False}, ("nothing", "")),
        ({"held": False, "deleting": False, "wants": True}, ("hold", "")),
        ({"held": True, "deleting": False, "wants": True}, ("nothing", "")),
        ({"held": True, "deleting": False, "wants": False}, ("let go", "")),
        ({"held": False, "deleting": True, "wants": True}, ("nothing", "")),
        ({**HELD, "members": 2}, ("end members", "")),
        ({**HELD, "members": 2, "waited": PATIENCE}, ("collect", "")),
        (HELD, ("collect", "")),
        ({**HELD, "done": True}, ("let go", "CheckpointsDeleted")),
        ({**HELD, "wants": False}, ("let go", "CheckpointsKept")),
        ({**HELD, "namespace_ends": True}, ("let go", "CheckpointsLeft")),
    ],
)
def test_a_trainer_is_held_until_its_checkpoints_are_gone_or_shall_stay(facts, act):
    """CS12, R6: held before there is anything to delete; a pod that a lost node keeps is not waited for for ever."""
    assert next_act(Facts(**facts)) == act


@pytest.mark.parametrize("deleting", [True, False])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("checkpoint", [None, {}, {"retainOnDelete": True}, {"retainOnDelete": False}])
def test_what_is_passed_over_unread_has_nothing_to_be_done(checkpoint, held, deleting):
    """CS12: nearly all Trainers are neither held nor to be."""
    wants = checkpoint is not None and not checkpoint.get("retainOnDelete", True)
    trainer = {
        "metadata": {"name": "t", **({"finalizers": ["other", FINALIZER]} if held else {})},
        "spec": {"epochs": 1, **({"checkpoint": checkpoint} if checkpoint is not None else {})},
    }
    assert concerns(trainer) is (held or wants)
    assert concerns(trainer) or next_act(Facts(held=held, deleting=deleting, wants=wants)) == ("nothing", "")


def test_each_try_has_its_own_id_and_comes_later_than_the_last():
    """MG1: an agent carries an id out once."""
    assert [order(n, store="s").id for n in range(3)] == ["store:purge", "store:purge#1", "store:purge#2"]
    waits = [retry_after(n) for n in range(1, 20)]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_RETRY


# -- the whole


class Case:
    """A running Trainer with checkpoints, deleted by its user."""

    def __init__(self):
        self.world = World(epochs=200)
        self.world.edit(checkpoint=self.policy(retainOnDelete=False))
        self.operators = [Operator(self.world)]

    @staticmethod
    def policy(**changes):
        return {"bucket": "claim", "intervalMinutes": 0.1, "maxRetention": 2, **changes}

    @property
    def operator(self):
        return self.operators[-1]

    async def run(self, seconds=1):
        for _ in range(seconds):
            await one_pass(self.world, self.operators)
            self.world.tick(self.operator)

    async def until(self, condition, at_most=200):
        for _ in range(at_most):
            if condition():
                return
            await self.run()
        raise AssertionError(f"it did not come: {self.operator.events.seen[-5:]}")

    async def start(self):
        await self.until(lambda: len(self.world.store) >= 2)
        return self

    def delete(self):
        found = self.trainer()
        found["metadata"]["deletionTimestamp"] = format_time(self.world.clock.utcnow())
        found["metadata"]["generation"] += 1
        self.world.api.log.put(TRAINERS, found)

    def trainer(self):
        return self.world.api.log.get(TRAINERS, KEY)

    def is_gone(self):
        return self.trainer() is None

    def condition(self):
        rows = self.trainer()["status"]["conditions"]
        return next((row for row in rows if row["type"] == "CheckpointsDeleted"), None)

    def said(self):
        return dict(self.operator.events.seen)


@pytest.fixture
async def case():
    return await Case().start()


async def test_its_checkpoints_go_before_it_does_and_nothing_is_saved_meanwhile(case):
    """CS12: the members end first, so that nothing comes after the deletion."""
    assert case.trainer()["metadata"]["finalizers"] == [FINALIZER]
    case.delete()
    await case.until(lambda: case.world.collected)
    assert not [agent for agent in case.world.agents.values() if agent.proc == "running"]
    await case.until(case.is_gone)
    assert case.world.collected == set(case.world.store)
    assert case.said()["CheckpointsDeleted"] == "its checkpoints are deleted"


async def test_a_trainer_that_keeps_its_checkpoints_is_not_held():
    """CS12: the default."""
    case = Case()
    case.world.edit(checkpoint=case.policy())
    await case.start()
    assert "finalizers" not in case.trainer()["metadata"]


async def test_a_store_that_is_gone_is_said_with_the_way_out_and_the_way_is_taken(case):
    """CS12, PB4: it holds the Trainer as long as the user wants it to."""
    case.world._store = lambda args: "Unreachable: the store does not answer"
    case.delete()
    await case.until(lambda: (case.condition() or {}).get("reason") == "StoreFails")
    message = case.condition()["message"]
    assert message.startswith("Unreachable: the store does not answer; it is tried again.")
    assert """kubectl patch trainer t -n default --type merge -p '{"spec":""" in message
    await case.run(60)
    assert not case.is_gone()
    case.world.edit(checkpoint=case.policy(retainOnDelete=True))
    await case.until(case.is_gone)
    assert case.world.collected == set()
    assert "CheckpointsKept" in case.said()


async def test_a_store_that_comes_back_is_cleared_without_another_word(case):
    """CS12: tried again by itself."""
    case.world._store = lambda args: "Unreachable: the store does not answer"
    case.delete()
    await case.until(lambda: (case.condition() or {}).get("reason") == "StoreFails")
    del case.world._store
    await case.until(case.is_gone)
    assert case.world.collected == set(case.world.store)


async def test_a_new_leader_goes_on_where_the_last_one_was(case):
    """RC8: all that it needs is the Trainer and the store."""
    case.world._store = lambda args: None
    case.delete()
    await case.until(lambda: case.world.api.log.get(PODS, ObjectKey(KEY.namespace, NAME)))
    case.operators.append(Operator(case.world))
    del case.world._store
    await case.until(case.is_gone)
    assert case.world.collected == set(case.world.store)


async def test_a_namespace_that_ends_takes_the_trainer_with_it_and_leaves_the_checkpoints(case):
    """EC7: no pod is created there any more, so nothing could delete them."""
    refusal = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    create = case.world.api.create

    async def refuse(resource, body, *, namespace=None):
        if resource is PODS:
            raise Forbidden("it is being terminated", status=403, reason="Forbidden", status_object=refusal)
        return await create(resource, body, namespace=namespace)

    case.world.api.create = refuse
    case.delete()
    await case.until(case.is_gone)
    assert case.world.collected == set()
    assert case.said()["CheckpointsLeft"].startswith("they stay in the store: no janitor can be made")


async def test_a_trainer_that_never_saved_goes_at_once():
    """CS12: its bucket may not even exist."""
    case = Case()
    case.world.edit(checkpoint=case.policy(retainOnDelete=False, intervalMinutes=500))
    await case.until(lambda: case.trainer()["metadata"].get("finalizers"))
    case.delete()
    await case.until(case.is_gone)
    assert not any("janitor" in name for name in case.world.pod_names)
