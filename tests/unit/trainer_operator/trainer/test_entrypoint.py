"""Roles without a command: the entry point of their image, read once and kept."""

import pytest

from simulation.cluster import Cluster, trainer
from simulation.views import SERVER, WORKER, with_spec, with_status
from trainer_operator.api.topology import Roles, RoleSettings
from trainer_operator.images import EntryPoint
from trainer_operator.trainer.entrypoint import images_to_read, recorded
from trainer_operator.trainer.pods import pod_manifest
from trainer_operator.trainer.views import Settings

DIGEST, NEWER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
FOUND = EntryPoint(DIGEST, ("python3", "train.py"), ("--fast",))
IMAGE = "ghcr.io/team/train:1"


def without_command(*, servers=0, **spec):
    return with_spec(trainer(servers=servers), command=None, image=IMAGE, **spec)


def with_role(of, role, **changes):
    roles = Roles(**{role: RoleSettings(**changes)})
    return with_spec(of, topology=of.spec.topology.model_copy(update={"roles": roles}))


def run(cluster, passes=3):
    for _ in range(passes):
        cluster.reconcile()
        cluster.tick()
    return cluster


def ready(cluster):
    return next(each for each in cluster.trainer.status.conditions if each.type == "Ready")


def container(of, member=WORKER):
    return pod_manifest(of, member, 0, Settings())["spec"]["containers"][0]


def test_a_trainer_waits_while_its_image_is_read_and_then_starts():
    """AG2: no pod fails for it, and waiting is no warning."""
    cluster = run(Cluster(without_command()))
    assert (cluster.pods, cluster.events) == ({}, [])
    assert (
        ready(cluster).message
        == f"role worker has no command: the entry point of image {IMAGE} is being read"
    )
    cluster.entry_points[IMAGE] = FOUND
    run(cluster)
    assert sorted(cluster.pods) == ["worker-0-a0", "worker-1-a0"]
    kept = recorded(cluster.trainer.status, "worker")
    assert (kept.tag, kept.digest, kept.command, kept.args) == (IMAGE, DIGEST, FOUND.command, FOUND.args)


def test_a_registry_that_cannot_be_read_is_one_sentence_and_what_to_do():
    """AG2, rule 7 of the architecture: the sample without a command is accepted, and no pod fails for it."""
    cluster = Cluster(without_command())
    cluster.entry_points[IMAGE] = "registry ghcr.io wants a login, and the operator reads no pull secrets"
    run(cluster)
    assert cluster.pods == {}
    sentence = (
        f"role worker has no command, and the entry point of image {IMAGE} cannot be read: registry ghcr.io wants a "
        "login, and the operator reads no pull secrets; set spec.command"
    )
    assert cluster.events == [("CommandNotKnown", sentence)]
    assert ready(cluster).message == sentence
    assert cluster.last.wake is not None
    cluster.trainer = with_spec(cluster.trainer, command=["train"])
    run(cluster)
    assert len(cluster.pods) == 2
    assert ready(cluster).message == ""


def test_what_was_read_is_kept_when_the_registry_is_gone_or_the_tag_moves():
    """IS4, IS12: restarts and other leaders see the same image and the same command."""
    cluster = Cluster(without_command())
    cluster.entry_points[IMAGE] = FOUND
    run(cluster, 8)
    cluster.entry_points[IMAGE] = EntryPoint(NEWER, ("other",), ())
    assert images_to_read(cluster.trainer) == frozenset()
    assert cluster.delete_pod(WORKER)
    run(cluster, 8)
    cluster.entry_points.clear()
    run(cluster, 8)
    assert "worker-0-a1" in cluster.pods
    assert recorded(cluster.trainer.status, "worker").digest == DIGEST


def test_an_image_that_is_changed_later_is_read_and_nothing_waits_for_it():
    """AG2: a training that runs is not stopped by a registry."""
    cluster = Cluster(without_command())
    cluster.entry_points[IMAGE] = FOUND
    run(cluster, 8)
    cluster.trainer = with_spec(cluster.trainer, image="ghcr.io/team/train:2")
    assert images_to_read(cluster.trainer) == {"ghcr.io/team/train:2"}
    assert cluster.delete_pod(WORKER)
    run(cluster, 8)
    assert "worker-0-a1" in cluster.pods
    cluster.entry_points["ghcr.io/team/train:2"] = EntryPoint(NEWER, ("other",), ())
    run(cluster, 1)
    assert recorded(cluster.trainer.status, "worker").digest == NEWER


def test_only_roles_that_are_there_and_have_no_command_are_read():
    """AG2."""
    assert images_to_read(trainer()) == frozenset()
    assert images_to_read(without_command()) == {IMAGE}
    assert images_to_read(with_role(without_command(), "worker", command=["own"])) == frozenset()
    other = with_role(without_command(servers=1), "ps", image="ghcr.io/team/server:1")
    assert images_to_read(other) == {IMAGE, "ghcr.io/team/server:1"}
    assert images_to_read(with_role(without_command(), "ps", image="ghcr.io/team/server:1")) == {IMAGE}


@pytest.mark.parametrize(
    ("args", "expected"), [(None, ["--fast"]), (["--slow"], ["--slow"])], ids=["the image's", "the Trainer's"]
)
def test_pods_run_exactly_the_image_that_was_read_and_own_args_replace_its_cmd(args, expected):
    """AG2, IS4: as Kubernetes does with args alone."""
    cluster = Cluster(without_command(args=args))
    cluster.entry_points[IMAGE] = FOUND
    run(cluster)
    made = container(cluster.trainer)
    assert made["image"] == f"ghcr.io/team/train@{DIGEST}"
    assert made["command"][-3:] == ["--", "python3", "train.py"]
    assert made["args"] == expected


def test_dollars_of_an_image_reach_its_process_as_they_are():
    """AG2: containers of an image alone expand nothing, but a pod's command does, and `$$` would become `$`."""
    cluster = Cluster(without_command())
    cluster.entry_points[IMAGE] = EntryPoint(DIGEST, ("sh", "-c", "echo $$ $(HOME)"), ("$1",))
    run(cluster)
    made = container(cluster.trainer)
    assert made["command"][-3:] == ["sh", "-c", "echo $$$$ $$(HOME)"]
    assert made["args"] == ["$$1"]


def test_a_command_of_the_trainers_own_wins_over_what_was_read():
    """AG2: and then the tag is left as it was given."""
    cluster = Cluster(without_command())
    cluster.entry_points[IMAGE] = FOUND
    run(cluster)
    own = with_status(with_spec(cluster.trainer, command=["own"]), cluster.trainer.status)
    made = container(own)
    assert (made["image"], made["command"][-2:], made.get("args")) == (IMAGE, ["--", "own"], None)


def test_each_role_has_the_entry_point_of_its_own_image():
    """AG2."""
    cluster = Cluster(with_role(without_command(servers=1), "ps", image="ghcr.io/team/server:1"))
    cluster.entry_points = {IMAGE: FOUND, "ghcr.io/team/server:1": EntryPoint(NEWER, (), ("serve",))}
    run(cluster)
    made = container(cluster.trainer, SERVER)
    assert (made["image"], made["command"][-1], made["args"]) == (
        f"ghcr.io/team/server@{NEWER}",
        "--",
        ["serve"],
    )
