"""The headless Service: names that hold for a member's whole life."""

import pytest

from runtime.objects import SERVICES, ObjectKey
from simulation.cluster import START, trainer
from simulation.views import OTHER, WORKER, active, observed, pod, with_status
from simulation.world import KEY, Operator, World, one_pass
from trainer_operator.api.status import Phase, TrainerStatus
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import CreateService
from trainer_operator.trainer.pods import owner_reference, pod_manifest
from trainer_operator.trainer.service import service_manifest, service_name
from trainer_operator.trainer.views import Settings


def manifest():
    of = trainer()
    return service_manifest(of, owner_reference(of))


def test_members_have_names_before_any_of_them_is_ready():
    """Without publishNotReadyAddresses members wait for names that only ready members have."""
    spec = manifest()["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


def test_the_trainer_owns_its_service():
    """TR22."""
    (owner,) = manifest()["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-t", True)


@pytest.mark.parametrize("attempt", [0, 7])
def test_the_service_selects_the_pods_and_each_attempt_has_the_name_of_its_member(attempt):
    """ME4, TR24."""
    of = trainer()
    pod = pod_manifest(of, OTHER, attempt, Settings())
    service = manifest()
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    assert pod["spec"]["hostname"] == "t-worker-1"


def test_a_trainer_whose_name_begins_with_a_digit_has_a_service_too():
    """TR29: names of Services begin with a letter; two Trainers never share one."""
    of = trainer()
    digits = of.model_copy(update={"metadata": of.metadata.model_copy(update={"name": "7b"})})
    assert service_name(digits) == "trainer-7b"


def creates(pods, *, status, has_service=False):
    seen = observed(pods=pods, of=with_status(trainer(workers=2), status), has_service=has_service)
    return CreateService() in decide(seen).actions


def test_the_service_waits_until_all_pods_have_an_address():
    """One list of addresses is written then; before, each pod that gets one makes the API server write it anew."""
    starting = TrainerStatus(phase=Phase.STARTING, start_time=START)
    some, everyone = (
        [(WORKER, pod(has_address=True)), (OTHER, pod(OTHER, has_address=last))] for last in (False, True)
    )
    assert not creates(some[:1], status=starting)
    assert not creates(some, status=starting)
    assert creates(everyone, status=starting)
    assert not creates(everyone, status=starting, has_service=True)


def test_training_that_runs_without_some_members_has_its_service():
    """ME3: the others may never come."""
    assert creates([(WORKER, pod(has_address=True))], status=active("worker:0", world=1))


async def test_a_service_that_was_deleted_by_hand_comes_back():
    """R1: nothing else of the Trainer changes."""
    world = World(epochs=50)
    operator = Operator(world)
    for _ in range(8):
        await one_pass(world, [operator])
        world.tick(operator)
    key = ObjectKey(KEY.namespace, "trainer-t")
    first = world.api.log.get(SERVICES, key)["metadata"]["uid"]
    world.api.log.delete(SERVICES, key)
    await one_pass(world, [operator])
    assert world.api.log.get(SERVICES, key)["metadata"]["uid"] != first
