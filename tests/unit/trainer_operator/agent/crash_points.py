"""Run a scenario against the store and die at its n-th call that touches the store, for every n.

    crash_points.py FOLDER SCENARIO

Deaths are real: a forked child ends with `_exit` from an audit hook, just before the call. Prints one JSON line per
crash point: what a reader finds right afterwards, and after the scenario was run again to its end.
"""

import json
import os
import sys

from trainer_operator.agent import collection, copying, index, packed, store
from trainer_operator.agent.backends import open_home

CKPT = "000000000040-e2-00ab"
TOUCHING = {"open", "os.mkdir", "os.link", "os.remove", "os.rename", "os.rmdir"}
TENSORS = {"w": bytes(range(256)) * 64, "b": b"bias", "empty": b""}


def source_file(folder):
    sources = [packed.Source(name, "|u1", (len(data),), memoryview(data)) for name, data in TENSORS.items()]
    path = os.path.join(folder, "source")
    packed.write(path, sources, step=40, ps_epoch=0, meta={"seed": 7})
    return path


def checkpoint(folder, where):
    """INTENT, two copies with their acks, DECISION."""
    store.identify(where.home)
    store.write_intent(where, {"ckpt": CKPT, "step": 40})
    for copy in (0, 1):
        source = packed.read_header(os.path.join(folder, "source"))
        done = copying.write_copy(where, source, shard=0, copy=copy, epoch=2, packed_below=0)
        store.write_ack(where, 0, copy, ack=done.ack("pod", "node", step=40, epoch=2))
    store.decide_commit(where, shards=1, copies=2, step=40, epoch=2, reason="Interval", nonce="n")


def collected(folder, where):
    """A committed checkpoint is deleted."""
    collection.collect(where)


SCENARIOS = {"checkpoint": checkpoint, "collect": collected}


def find(where):
    """What a reader finds, and everything that contradicts itself."""
    problems = []
    decision = store.read_decision(where)
    gone = store.is_collected(where)
    exists = decision is not None and decision.committed and not gone
    if exists:
        _, data = index.read_shard(where, 0)
        if {name: bytes(value) for name, value in data.items()} != TENSORS:
            problems.append("the committed content differs")
    if not gone:
        for shard, copies in store.read_acks(where).items():
            for copy, ack in copies.items():
                raw = where.store.get(where.index(shard, copy), limit=index.MAX_INDEX_BYTES)
                parsed = index.parse(raw)
                if store.hashlib.sha256(raw).hexdigest() != ack.idx_sha256:
                    problems.append(f"ack {shard}.r{copy} names another index")
                chunks = [chunk for tensor in parsed.tensors for chunk in tensor.chunks]
                root = where.store.address
                sizes = [
                    os.path.getsize(os.path.join(root, where.chunk(copy, chunk.sha256))) for chunk in chunks
                ]
                if sizes != [chunk.length for chunk in chunks]:
                    problems.append("an acked copy lacks a chunk")
    return {"exists": exists, "gone": gone, "decided": decision is not None, "problems": problems}


def run(folder, scenario, die_at):
    """Run the scenario in a child that dies at its n-th touching call; true when it came to its end."""
    where = store.CheckpointDir(open_home(os.path.join(folder, "root", "store")), CKPT)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = [die_at]

    def hook(event, arguments):
        if event in TOUCHING and arguments and str(arguments[0]).startswith(folder + "/root"):
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1

    sys.addaudithook(hook)
    SCENARIOS[scenario](folder, where)
    os._exit(0)


def main(base, scenario):
    for die_at in range(10_000):
        folder = os.path.join(base, str(die_at))
        os.makedirs(os.path.join(folder, "root"))
        source_file(folder)
        where = store.CheckpointDir(open_home(os.path.join(folder, "root", "store")), CKPT)
        if scenario == "collect":
            checkpoint(folder, where)
        finished = run(folder, scenario, die_at)
        after_crash = find(where)
        SCENARIOS[scenario](folder, where)
        print(
            json.dumps({"at": die_at, "finished": finished, "crash": after_crash, "resumed": find(where)}),
            flush=True,
        )
        if finished:
            return


main(*sys.argv[1:])
