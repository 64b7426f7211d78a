"""One real agent whose training process knows nothing of it (AG5)."""

import sys

from integration.agent.scripted import kill

PROGRAM = """
import itertools, sys, time
for step in itertools.count(1):
    print("epoch 1 step", step, "of max_steps 100000", file=getattr(sys, sys.argv[1]), flush=True)
    time.sleep(0.05)
"""


def begin(operator, epoch=1, **more):
    operator.want("worker-0", f"prepare:{epoch}", "Prepare", epoch=epoch, psEpoch=0)
    assert operator.result(f"prepare:{epoch}")["ok"]
    args = {"epoch": epoch, "psEpoch": 0, "rank": 0, "world": 1, "env": {}, "members": [], "restoreStep": 0}
    return operator.want("worker-0", f"go:{epoch}", "Go", **{**args, **more})


def test_steps_come_from_the_output_and_no_checkpoint_is_promised(operator, start_agent):
    """AG5, CS4, DT1: also after a restart, which begins with the program's first step again."""
    agent = start_agent("worker", 0, [sys.executable, "-c", PROGRAM, "stderr"])
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("steps") == "output", 30, "a printed step")
    operator.wait(lambda: operator.beat("worker-0")["step"] > 100, 30, "a hundred steps")
    beat = operator.beat("worker-0")
    assert (beat["phase"], beat["proc"]) == ("train", "running")
    assert beat["stepAgeMs"] < 5000
    args = {
        "ckpt": "000000100000-e1-0001",
        "step": 100000,
        "shard": 0,
        "copies": [0],
        "world": 1,
        "pause": False,
    }
    refused = operator.result(operator.want("worker-0", "ckpt", "Checkpoint", **args))
    assert not refused["ok"]
    assert "does not use trainer_sdk" in refused["error"]
    operator.wait(lambda: operator.beat("worker-0")["acks"], 30, "the copy that will not come")
    assert not operator.beat("worker-0")["acks"][0]["ok"]
    kill(operator.beat("worker-0")["pid"])
    operator.wait(lambda: operator.beat("worker-0")["proc"] == "exited", 30, "its end")
    assert operator.beat("worker-0")["exit"]["step"] > 100
    operator.result(begin(operator, 2))
    operator.wait(lambda: operator.beat("worker-0")["run"] == 2, 30, "the second process")
    assert operator.beat("worker-0")["step"] == 0
    operator.wait(lambda: operator.beat("worker-0")["steps"] == "output", 30, "its steps")
    assert "epoch 1 step 100 of" in agent.log
