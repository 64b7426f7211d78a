"""Memory of a process tree, on a made-up /proc."""

import os

from trainer_operator.devcluster.node.memory import private_bytes

PAGE = os.sysconf("SC_PAGE_SIZE")


def process(root, pid, resident, shared, children=()):
    task = root / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (root / str(pid) / "statm").write_text(f"999 {resident} {shared} 1 0 1 0\n")
    (task / "children").write_text(" ".join(map(str, children)))


def test_private_memory_of_all_descendants_is_summed(tmp_path):
    process(tmp_path, 1, 100, 40, [2, 3])
    process(tmp_path, 2, 10, 5, [4])
    process(tmp_path, 4, 7, 0)
    assert private_bytes(1, proc=str(tmp_path)) == (60 + 5 + 7) * PAGE


def test_process_that_is_gone_holds_nothing(tmp_path):
    assert private_bytes(9, proc=str(tmp_path)) == 0
