"""The headless Service: names that hold for a member's whole life."""

import pytest

from simulation.cluster import trainer
from simulation.views import OTHER
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
