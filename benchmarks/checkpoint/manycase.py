"""Lists and collects all checkpoints of a store, in a process of its own whose memory is what is measured.

    python -m benchmarks.checkpoint.manycase STORE

The last line of output is JSON: memory at rest and at its highest in MB, seconds, and how much was found and deleted.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from trainer_operator.agent import store, storeops
from trainer_operator.agent.backends import Home
from trainer_operator.agent.backends.file import FileStore


def main() -> None:
    """Measure."""
    home = Home(FileStore(sys.argv[1]), "n/t")
    store.store_id(home)
    idle = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    began, listed, after = time.monotonic(), 0, ""
    while True:
        page = storeops.run(home, {"op": "inventory", "after": after})
        listed += len(page["found"])
        after = page["last"]
        if not after:
            break
    inventoried = time.monotonic() - began
    oldest = store.ids(home)[0]
    began = time.monotonic()
    storeops.run(home, {"op": "collect", "ckpt": oldest})
    one = time.monotonic() - began
    began = time.monotonic()
    done = storeops.run(home, {"op": "purge"})
    purged = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    seconds = {"list": inventoried, "one": one, "all": purged}
    print(json.dumps({"idle": idle, "peak": peak, "listed": listed, "left": done["left"], **seconds}))


if __name__ == "__main__":
    main()
