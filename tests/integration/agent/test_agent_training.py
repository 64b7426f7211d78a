"""Real agents launch real training against a scripted operator: what a disturbance may change, and what it may not."""

import json
import re
import subprocess
import sys

import pytest

from integration.agent.scripted import TRAIN, kill

pytestmark = pytest.mark.slow
CKPT = "{:012d}-e{}-{:04x}"


@pytest.fixture(scope="module")
def reference():
    """The accuracy of an undisturbed run in one process."""
    done = subprocess.run(
        [sys.executable, str(TRAIN), "--local", "--epochs", "20"], check=True, capture_output=True, text=True
    )
    return float(re.search(r"accuracy ([0-9.]+)", done.stdout).group(1))


class Conductor:
    """Does what the Trainer reconciler does, as far as these tests need it."""

    def __init__(self, operator, agents):
        self.operator, self.agents = operator, agents
        self.attempt = 0

    def prepare(self, epoch):
        for agent in self.agents:
            self.operator.want(
                agent.member, f"prepare:{epoch}:{agent.member}", "Prepare", epoch=epoch, psEpoch=0
            )
        for agent in self.agents:
            assert self.operator.result(f"prepare:{epoch}:{agent.member}")["ok"]

    def members(self):
        members = []
        for agent in self.agents:
            beat = self.operator.beat(agent.member)
            role, index = agent.member.split("-")
            place = {"address": beat["address"], "port": beat["port"]}
            members.append({"role": role, "index": int(index), "rank": int(index), **place})
        return members

    def go(self, epoch, *, ps_epoch=0, only=None, restore=None, step=0, ring=False):
        self.attempt += 1
        members = self.members()
        world = sum(member["role"] != "ps" for member in members)
        for agent in self.agents:
            if only is None or agent in only:
                self.operator.want(
                    agent.member,
                    f"go:{epoch}:{self.attempt}:{agent.member}",
                    "Go",
                    epoch=epoch,
                    psEpoch=ps_epoch,
                    rank=int(agent.member.split("-")[1]),
                    world=world,
                    env={"RANK": "0"},
                    members=members,
                    restore=restore,
                    restoreStep=step,
                    ring=ring,
                    reason="test",
                )
        return [
            f"go:{epoch}:{self.attempt}:{agent.member}"
            for agent in self.agents
            if only is None or agent in only
        ]

    def checkpoint(self, holders, *, epoch):
        """Take a checkpoint with one shard per holder and commit it; return its id and step."""
        ckpt, step = self.staged(holders, epoch)
        chief = self.agents[0].member
        for agent in holders:
            self.operator.wait(lambda agent=agent: self.acks(agent, ckpt), what="the ack")
            assert all(ack["ok"] for ack in self.acks(agent, ckpt))
        args = {"shards": len(holders), "copies": 1, "step": step, "epoch": epoch, "nonce": "n"}
        self.operator.want(chief, f"decide:{ckpt}", "Store", op="decide", outcome="commit", ckpt=ckpt, **args)
        result = self.operator.result(f"decide:{ckpt}")
        assert result["ok"], result
        assert result["value"]["outcome"] == "commit"
        with self.operator.changed:
            self.operator.decided[ckpt] = "commit"
            self.operator.changed.notify_all()
        return ckpt, step

    def staged(self, holders, epoch):
        """Ask for a checkpoint until every holder accepts: one that is already past says no (CS2)."""
        for _ in range(4):
            step = max(self.operator.beat(agent.member)["step"] for agent in holders) + 80
            self.attempt += 1
            ckpt = CKPT.format(step, epoch, self.attempt)
            asked = [
                self.operator.want(
                    agent.member,
                    f"ckpt:{ckpt}:{agent.member}",
                    "Checkpoint",
                    ckpt=ckpt,
                    step=step,
                    shard=shard,
                    copies=[0],
                    world=3,
                    pause=False,
                )
                for shard, agent in enumerate(holders)
            ]
            results = [self.operator.result(directive) for directive in asked]
            if all(result["ok"] for result in results):
                assert all(result["value"] == {"step": step} for result in results)
                return ckpt, step
            assert all(result["ok"] or result["error"] == "past" for result in results)
        raise AssertionError("the holders were past the target four times")

    def acks(self, agent, ckpt):
        return [ack for ack in self.operator.beat(agent.member).get("acks", []) if ack["ckpt"] == ckpt]

    def wait_step(self, agent, step):
        self.operator.wait(
            lambda: self.operator.beat(agent.member).get("step", 0) >= step, what=f"step {step}"
        )

    def finish(self, timeout=90):
        def is_done(agent):
            beat = self.operator.beat(agent.member)
            return beat.get("proc") == "exited" and beat["exit"]["code"] == 0

        self.operator.wait(
            lambda: all(is_done(agent) for agent in self.agents), timeout, "success of all members"
        )
        with self.operator.changed:
            self.operator.close_agents = True
            self.operator.changed.notify_all()
        for agent in self.agents:
            assert agent.process.wait(15) == 0


def training(mode, logs, pace="0.02"):
    return [sys.executable, str(TRAIN), "--mode", mode, "--pace", pace, "--log-dir", str(logs)]


def steps_of(logs, member):
    return [json.loads(line) for line in (logs / f"{member}.jsonl").read_text().splitlines()]


def assert_each_sample_once(entries, total=460):
    """Of the history that counts, each step was applied exactly once, and steps rise within an epoch (ME7, ME8)."""
    history = {}
    for entry in entries:
        key = (entry["epoch"], entry["psEpoch"])
        for step in [step for step in history if step >= entry["step"]]:
            assert history[step]["key"] < key, f"step {step} twice in {key}"
            del history[step]
        history[entry["step"]] = {**entry, "key": key}
    assert sorted(history) == list(range(1, total + 1))


def test_all_reduce_resumes_from_a_committed_checkpoint_after_a_crash(
    operator, start_agent, tmp_path, reference
):
    """AG1, ME3, ME4, MG1, DE1, LT1."""
    logs = tmp_path / "logs"
    agents = [start_agent("worker", index, training("allreduce", logs)) for index in range(3)]
    conductor = Conductor(operator, agents)
    conductor.prepare(1)
    conductor.go(1)
    conductor.wait_step(agents[0], 20)
    ckpt, step = conductor.checkpoint([agents[0]], epoch=1)
    boots = {agent.member: operator.beat(agent.member)["boot"] for agent in agents}

    kill(operator.beat("worker-1")["pid"])
    operator.wait(lambda: operator.beat("worker-1")["proc"] == "exited", 5, "the exit")
    assert operator.beat("worker-1")["exit"]["sig"] == 9
    operator.wait(lambda: operator.beat("worker-0")["phase"] == "rendezvous", 5, "waiting neighbours")
    assert operator.beat("worker-0")["proc"] == "running"

    conductor.prepare(2)
    assert all(operator.beat(agent.member)["exit"] is None for agent in agents)
    conductor.go(2, restore={"ckpt": ckpt, "step": step}, step=step)
    conductor.finish()

    assert {member: beat["boot"] for member, beat in operator.beats.items()} == boots
    assert {beat["run"] for beat in operator.beats.values()} == {2}
    accuracy = operator.beat("worker-0")["metrics"]["accuracy"]
    assert accuracy == pytest.approx(reference, abs=0.005)
    assert accuracy > 0.95
    for agent in agents:
        entries = steps_of(logs, agent.member)
        assert_each_sample_once(entries)
        assert next(entry for entry in entries if entry["epoch"] == 2)["step"] == step + 1


def test_workers_outlive_a_parameter_server_and_roll_back_to_the_common_snapshot(
    operator, start_agent, tmp_path, reference
):
    """PSR1, PSR2, PSR4, PSR5, LT6."""
    logs = tmp_path / "logs"
    command = training("ps", logs)
    servers = [start_agent("ps", index, command) for index in range(2)]
    workers = [start_agent("worker", index, command) for index in range(2)]
    conductor = Conductor(operator, servers + workers)
    conductor.prepare(1)
    conductor.go(1, ps_epoch=1)
    for server in servers:
        operator.wait(
            lambda server=server: len(operator.beat(server.member).get("have", [])) >= 2, what="snapshots"
        )
    pids = {worker.member: operator.beat(worker.member)["pid"] for worker in workers}
    survivor = operator.beat("ps-1")["pid"]

    kill(operator.beat("ps-0")["pid"])
    operator.wait(lambda: operator.beat("ps-0")["proc"] == "exited", 5, "the exit")
    for worker in workers:
        operator.wait(
            lambda worker=worker: operator.beat(worker.member)["phase"] == "waiting_ps", 5, "waiting workers"
        )
    common = max(set(operator.beat("ps-0")["have"]) & set(operator.beat("ps-1")["have"]))
    conductor.go(1, ps_epoch=2, only=[servers[0]], step=common, ring=True)
    members = [member for member in conductor.members() if member["role"] == "ps"]
    for agent in (servers[1], *workers):
        operator.want(
            agent.member, f"ups:2:{agent.member}", "UpdatePS", psEpoch=2, members=members, step=common
        )
    for worker in workers:
        operator.wait(
            lambda worker=worker: operator.beat(worker.member)["phase"] == "train", what="training again"
        )
        assert operator.beat(worker.member)["psEpoch"] == 2
        assert operator.beat(worker.member)["pid"] == pids[worker.member]
    assert operator.beat("ps-1")["pid"] == survivor
    conductor.finish()

    assert {beat["run"] for member, beat in operator.beats.items() if member != "ps-0"} == {1}
    assert operator.beat("worker-0")["metrics"]["accuracy"] == pytest.approx(reference, abs=0.005)
    for agent in conductor.agents:
        assert_each_sample_once(steps_of(logs, agent.member))


def test_a_parameter_server_without_its_ring_restores_the_committed_checkpoint(
    operator, start_agent, tmp_path, reference
):
    """PSR3, RS2."""
    logs = tmp_path / "logs"
    command = training("ps", logs)
    server = start_agent("ps", 0, command)
    workers = [start_agent("worker", index, command) for index in range(2)]
    conductor = Conductor(operator, [server, *workers])
    conductor.prepare(1)
    conductor.go(1, ps_epoch=1)
    conductor.wait_step(workers[0], 10)
    ckpt, step = conductor.checkpoint([server], epoch=1)
    kill(operator.beat("ps-0")["pid"])
    operator.wait(lambda: operator.beat("ps-0")["proc"] == "exited", 5, "the exit")
    for path in (server.folder / "ring").iterdir():
        path.unlink()
    conductor.go(1, ps_epoch=2, only=[server], restore={"ckpt": ckpt, "step": step}, step=step)
    members = [member for member in conductor.members() if member["role"] == "ps"]
    for worker in workers:
        operator.want(
            worker.member, f"ups:2:{worker.member}", "UpdatePS", psEpoch=2, members=members, step=step
        )
    conductor.finish()
    assert operator.beat("worker-0")["metrics"]["accuracy"] == pytest.approx(reference, abs=0.005)
    assert_each_sample_once(steps_of(logs, "worker-1"))


def test_a_lost_worker_comes_back_alone_and_every_sample_still_counts_once(
    operator, start_agent, tmp_path, reference
):
    """ME5: a worker's crash leaves the epoch alone."""
    logs = tmp_path / "logs"
    command = training("ps", logs)
    servers = [start_agent("ps", index, command) for index in range(2)]
    workers = [start_agent("worker", index, command) for index in range(2)]
    conductor = Conductor(operator, servers + workers)
    conductor.prepare(1)
    conductor.go(1, ps_epoch=1)
    for number in range(3):
        conductor.wait_step(workers[1], operator.beat("worker-1").get("step", 0) + 30)
        kill(operator.beat("worker-1")["pid"])
        operator.wait(lambda: operator.beat("worker-1")["proc"] == "exited", 5, "the exit")
        assert operator.result(conductor.go(1, ps_epoch=1, only=[workers[1]])[0])["ok"], number
    conductor.finish()
    assert operator.beat("worker-1")["run"] == 4
    assert operator.beat("worker-0")["run"] == 1
    assert operator.beat("worker-0")["metrics"]["accuracy"] == pytest.approx(reference, abs=0.005)
    for server in servers:
        assert_each_sample_once(steps_of(logs, server.member))


def test_three_workers_without_pace_finish_in_a_few_seconds(operator, start_agent, tmp_path, reference):
    """The example's own speed: 20 epochs, most of the time is starting Python."""
    agents = [
        start_agent("worker", index, training("allreduce", tmp_path / "logs", pace="0")) for index in range(3)
    ]
    conductor = Conductor(operator, agents)
    conductor.prepare(1)
    conductor.go(1)
    conductor.finish(timeout=30)
    assert operator.beat("worker-0")["metrics"]["accuracy"] == pytest.approx(reference, abs=0.005)
