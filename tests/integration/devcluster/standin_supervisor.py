"""A real supervisor with a real control plane and stand-ins for nodes and provisioner: `FOLDER NODES`."""

import sys
from pathlib import Path

from trainer_operator.devcluster.state import Settings
from trainer_operator.devcluster.supervisor import Commands, run

NODE = Path(__file__).with_name("standin_node.py")
COMMANDS = Commands(
    node=(sys.executable, str(NODE)), provisioner=(sys.executable, "-c", "import time; time.sleep(600)")
)

sys.exit(run(Path(sys.argv[1]), Settings(nodes=int(sys.argv[2])), commands=COMMANDS))
