"""The sequence of disturbances, with a cluster and operators that only note what is done to them."""

import asyncio

import pytest

from trainer_operator.demo import processes
from trainer_operator.demo.disturbances import PLAN, Kind
from trainer_operator.demo.scenario import Scenario, choose_node
from trainer_operator.demo.timeline import CheckpointSeen, LeadersSeen, LeaseSeen, PodSeen
from trainer_operator.devcluster.errors import ClusterFault


class World:
    """A cluster, its operators and the clock: while somebody waits, training goes on."""

    def __init__(self, recording, script=()):
        self.recording, self.script = recording, list(script)
        self.done = []

    # the clock
    def monotonic(self):
        return self.recording.now

    async def sleep(self, seconds):
        self.recording.apply(1, pace=seconds)
        if self.script and self.done:
            self.script.pop(0)(self.recording)
        await asyncio.sleep(0)

    # the cluster
    def kubectl(self, *arguments):
        self.done.append("kubectl " + " ".join(arguments))

    def kill_node(self, node):
        self.done.append(f"kill {node}")

    def start_node(self, node):
        self.done.append(f"start {node}")

    # the operators
    def kill(self, name):
        self.done.append(f"kill {name}")

    def start(self, name):
        self.done.append(f"start {name}")


def scenario(world, *kinds, **changes):
    return Scenario(
        timeline=world.recording.timeline,
        clock=world,
        origin=0.0,
        cluster=world,
        operators=world,
        trainer="digits",
        announce=lambda _: None,
        plan=[disturbance for disturbance in PLAN if disturbance.kind in kinds],
        **changes,
    )


def fail(recording, member, *, process):
    recording.process(member, process).tell(
        restarts=1, disruptions=recording.status.disruptions + 1, recovering=(member,)
    )


async def test_a_deleted_pod_is_measured_after_training_is_whole_again(recording):
    world = World(recording, [lambda r: fail(r, "worker-1", process=500)])
    run = scenario(world, Kind.DELETE_POD)
    await run.run()
    assert world.done == ["kubectl delete pod digits-worker-1 --wait=false"]
    (row,) = run.rows
    assert (row.survived, row.disruptions, row.restarted) == (True, 1, ("worker-1",))


async def test_nothing_is_disturbed_before_training_is_steady(recording):
    world = World(recording.tell(phase="Recovering"))
    run = scenario(world, Kind.DELETE_POD)
    await run.run()
    assert world.done == []
    assert run.rows == []


async def test_what_is_not_over_in_time_is_not_survived_and_the_next_one_follows(recording):
    world = World(recording)
    run = scenario(world, Kind.DELETE_POD, Kind.SCALE_UP)
    await run.run()
    assert [row.survived for row in run.rows] == [False, False]
    assert world.done[1] == "kubectl scale trainer digits --replicas=5"


async def test_a_training_that_ends_ends_the_scenario(recording):
    world = World(recording, [lambda r: r.tell(phase="Succeeded")])
    run = scenario(world, Kind.DELETE_POD, Kind.SCALE_UP)
    await run.run()
    assert [row.survived for row in run.rows] == [False]
    assert len(world.done) == 1


async def test_a_node_without_servers_loses_its_power_and_gets_it_back(recording):
    world = World(recording, [lambda r: fail(r, "worker-0", process=500)])
    run = scenario(world, Kind.KILL_NODE)
    await run.run()
    assert world.done == ["kill node-1", "start node-1"]
    assert run.rows[0].victims == ("worker-0",)


async def test_the_leader_is_killed_and_started_again_once_the_other_leads(recording):
    def follow(r):
        r.timeline.add(LeaseSeen(r.now, "second"))
        r.lead("operator-b").wait(0.1).tell(step=r.step)

    world = World(recording, [follow])
    run = scenario(world, Kind.KILL_LEADER)
    await run.run()
    assert world.done == ["kill operator-a", "start operator-a"]
    assert run.rows[0].survived


async def test_without_one_known_leader_none_is_killed(recording):
    recording.timeline.add(LeadersSeen(recording.now, ()))
    with pytest.raises(ClusterFault, match="not known which operator leads"):
        await scenario(World(recording), Kind.KILL_LEADER).run()


async def test_a_process_that_has_just_ended_cannot_be_killed(recording, monkeypatch):
    monkeypatch.setattr(processes, "kill", lambda process, number: False)
    recording.timeline.add(CheckpointSeen(0.0, "c1", 5, "Committed"))
    with pytest.raises(ClusterFault, match="ps-0 has no training process to kill"):
        await scenario(World(recording), Kind.KILL_SERVER).run()


@pytest.mark.parametrize(
    ("pods", "node"),
    [
        ({"ps-0": "a", "worker-0": "a", "worker-1": "b"}, "b"),
        ({"ps-0": "a", "worker-0": "a"}, "a"),
        ({"ps-0": "a", "worker-0": "b", "worker-1": "b", "worker-2": "c"}, "c"),
        ({"ps-0": "a", "worker-0": ""}, None),
        ({}, None),
    ],
)
def test_a_node_with_workers_and_if_possible_without_servers_is_chosen(pods, node):
    assert choose_node({member: PodSeen(0.0, member, member, 0, on) for member, on in pods.items()}) == node
