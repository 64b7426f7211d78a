"""What the SDK waits for, with the agent's socket on the other side: soft epochs, pauses and what ends them."""

import json
import threading
import time

import pytest

from trainer_operator.agent.sdk.trainer_sdk import Job, ServersLost
from trainer_operator.agent.sdksocket import SdkServer


class Agent:
    """The agent's end of the socket: notes what the process says."""

    def __init__(self, path):
        self.path, self.said, self._news = path, [], threading.Condition()
        self.server = SdkServer(path, on_message=self._take)

    def _take(self, message):
        with self._news:
            self.said.append(message)
            self._news.notify_all()

    def wait(self, **fields):
        """Wait until the process said a message with these fields."""

        def found():
            return next((m for m in self.said if fields.items() <= m.items()), None)

        with self._news:
            assert self._news.wait_for(found, 60), self.said
        return found()

    def tell(self, **message):
        self.server.order(message["t"], message)


@pytest.fixture
def agent(tmp_path):
    agent = Agent(str(tmp_path / "s"))
    yield agent
    agent.server.close()


@pytest.fixture
def connect(agent):
    """Make jobs that speak to the agent; their connections are closed in the end."""
    jobs = []

    def make(**environment):
        jobs.append(Job({"TRAINER_AGENT_SOCK": agent.path, **environment}, soft_epochs=True))
        agent.wait(t="hello", softEpochs=True)
        return jobs[-1]

    yield make
    for job in jobs:
        if job._agent is not None:
            job._agent.shutdown(2)


def pause(agent, job, *, at):
    """Tell the process to pause after a step, and wait until it knows."""
    agent.tell(t="pause", at=at)
    with job._told:
        assert job._told.wait_for(lambda: job._pause_at == at, 60)


def on_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    return thread, results


def place(role, index, rank=None):
    return {
        "role": role,
        "index": index,
        "rank": index if rank is None else rank,
        "address": "a",
        "port": index,
    }


WORLD = [place("worker", 0), place("worker", 1), place("worker", 4, rank=2), place("ps", 0)]


def update(ps_epoch=4, step=40, **more):
    return {
        "t": "updateps",
        "psEpoch": ps_epoch,
        "step": step,
        "members": WORLD,
        "epoch": 2,
        "world": 3,
        **more,
    }


def test_a_process_that_joins_waits_until_it_is_let_in(agent, connect):
    """ME5, ME6: it learns epoch, rank, world and step at once."""
    job = connect(TRAINER_ROLE="worker", TRAINER_INDEX="4", TRAINER_EPOCH="1")
    thread, _ = on_thread(job.join)
    agent.wait(t="phase", name="rendezvous")
    assert thread.is_alive()
    agent.tell(**update())
    thread.join(60)
    assert (job.epoch, job.ps_epoch, job.rank, job.world, job.restore_step) == (2, 4, 2, 3, 40)
    assert [member.index for member in job.workers] == [0, 1, 4]
    assert agent.wait(t="psepoch") == {"t": "psepoch", "n": 4, "step": 40, "epoch": 2}


def test_a_process_that_joins_does_not_wait_for_an_agent_that_is_gone(agent, connect):
    """AG4: nobody could let it in any more."""
    job = connect()
    job._agent.shutdown(2)
    with pytest.raises(ServersLost, match="the agent is gone"):
        job.join()


def test_a_survivor_takes_its_new_world_with_the_update(agent, connect):
    """ME5: between two steps, never within one."""
    members = json.dumps([place("worker", 0), place("ps", 0)])
    job = connect(TRAINER_MEMBERS=members, TRAINER_EPOCH="1", TRAINER_WORLD_SIZE="1", TRAINER_PS_EPOCH="3")
    job.step(40)
    agent.tell(**update())
    thread, results = on_thread(job.wait_ps)
    thread.join(60)
    assert results[0].world == job.world == 3
    assert (job.epoch, job.rank) == (2, 0)
    assert len(job.members) == 4


def test_an_update_of_the_servers_alone_leaves_the_world_as_it_is(agent, connect):
    """PSR5."""
    members = json.dumps(WORLD)
    job = connect(TRAINER_MEMBERS=members, TRAINER_EPOCH="2", TRAINER_WORLD_SIZE="3", TRAINER_PS_EPOCH="4")
    agent.tell(t="updateps", psEpoch=5, step=20, members=[place("ps", 0)])
    on_thread(job.wait_ps)[0].join(60)
    assert (job.epoch, job.world, job.ps_epoch, len(job.workers)) == (2, 3, 5, 3)


def test_waiting_for_a_server_that_is_away_costs_no_processor(agent, connect):
    """FT14, PSR2: the process says that it waits, and sleeps until it is told."""
    job = connect(TRAINER_PS_EPOCH="1")
    used, began = time.thread_time(), time.monotonic()
    assert job.wait_ps(timeout=2.0) is None
    assert time.thread_time() - used < 0.05 * (time.monotonic() - began)
    agent.wait(t="phase", name="waiting_ps")
    agent.tell(**update(ps_epoch=2))
    assert job.wait_ps(timeout=60).step == 40


def test_a_standby_is_one_until_it_is_named_among_the_servers(agent, connect):
    """PSR3: its rank is that of its shard all the time."""
    members = json.dumps([place("worker", 0), place("ps", 0)])
    job = connect(TRAINER_ROLE="ps", TRAINER_INDEX="1", TRAINER_MEMBERS=members, TRAINER_PS_EPOCH="1")
    assert job.is_standby
    agent.tell(t="updateps", psEpoch=2, step=20, members=[place("ps", 1, rank=0)])
    on_thread(job.wait_ps)[0].join(60)
    assert not job.is_standby
    assert (job.rank, [server.index for server in job.servers]) == (0, [1])


def test_the_step_is_known_before_the_pause_that_follows_it(agent, connect):
    """ME5: the operator goes by the step at which servers stand."""
    job = connect(TRAINER_ROLE="ps")
    pause(agent, job, at=3)
    for n in range(1, 4):
        job.step(n)
    thread, _ = on_thread(job.pause_point)
    agent.wait(t="phase", name="paused")
    steps = [
        message["n"]
        for message in agent.said[: agent.said.index({"t": "phase", "name": "paused"})]
        if "n" in message
    ]
    assert steps[-1] == 3
    agent.server.order("pause", None, say={"t": "resume"})
    thread.join(60)
    assert not thread.is_alive()


def test_a_new_server_epoch_ends_a_pause_until_it_is_taken(agent, connect):
    """PSR2, ME5: who waits must still go where the others go; then the pause holds again."""
    job = connect(TRAINER_ROLE="ps", TRAINER_PS_EPOCH="3")
    job.step(40)
    pause(agent, job, at=40)
    thread, _ = on_thread(job.pause_point)
    agent.wait(t="phase", name="paused")
    agent.tell(**update())
    thread.join(60)
    assert job.ps_update().step == 40
    again, _ = on_thread(job.pause_point)
    agent.server.order("pause", None, say={"t": "resume"})
    again.join(60)
    assert not again.is_alive()


def test_a_checkpoint_at_a_later_step_lifts_a_pause(agent, connect):
    """CS2, TR34: all have to come to the step that is saved."""
    job = connect(TRAINER_ROLE="ps")
    job.step(40)
    pause(agent, job, at=40)
    thread, _ = on_thread(job.pause_point)
    agent.wait(t="phase", name="paused")
    agent.tell(t="checkpoint", ckpt="c", step=60, pause=True)
    thread.join(60)
    assert not thread.is_alive()
    assert job.should_checkpoint(60)


def test_a_phase_is_told_with_the_time_that_it_may_take(agent, connect):
    """AG4, SL1: only where the training code knows it."""
    job = connect()
    job.phase("eval", budget=90)
    assert agent.wait(t="phase", name="eval")["budget"] == 90
    job.phase("train")
    assert "budget" not in agent.wait(t="phase", name="train")
