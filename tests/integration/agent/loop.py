"""A training loop without numpy, for tests of the agent: `loop.py TOTAL PACE [exit CODE | raise | hang | forkhang]`."""

import subprocess
import sys
import time

import trainer_sdk as sdk

total, pace, *ending = sys.argv[1:]
job = sdk.init()
restored = job.restore()
start = restored.step if restored else 0
print("restored", start, bytes(restored.state["counter"]).decode() if restored else "-", flush=True)
children = (
    [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])] if "forkhang" in ending else []
)
if children:
    print("child", children[0].pid, flush=True)
for n in range(start + 1, int(total) + 1):
    job.pause_point()
    time.sleep(float(pace))
    job.step(n, samples=n * 2)
    if job.should_checkpoint(n):
        job.save(n, {"counter": str(n).encode()}, {"note": "from loop"})
        if "after-save" in ending:
            sys.exit(0)
if "raise" in ending:
    raise ValueError("the loss is not a number")
if "exit" in ending:
    sys.exit(int(ending[-1]))
if "hang" in ending or children:
    time.sleep(600)
job.done()
