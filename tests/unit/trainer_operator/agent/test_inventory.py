"""What a store holds of a Trainer, a page at a time."""

import json
import shutil

from trainer_operator.agent import inventory, store, storeops
from trainer_operator.agent.backends import open_home
from trainer_operator.agent.store import CheckpointDir


def commit(home, step):
    ckpt = f"{step:012d}-e1-00ab"
    where = CheckpointDir(home, ckpt)
    record = {
        "v": 1,
        "outcome": "commit",
        "reason": "Interval",
        "step": step,
        "epoch": 1,
        "nonce": "n",
        "bytes": 9,
    }
    record["shards"] = {str(shard): {"copies": {"0": "a" * 64, "1": "b" * 64}} for shard in range(2)}
    where.store.create(where.record("DECISION"), json.dumps(record).encode())
    return where


def test_only_what_exists_is_listed_with_what_its_decision_says(tmp_path):
    """RS6, CK1: no attempt, nothing that was given up, collected, or is of a newer version."""
    home = open_home(str(tmp_path / "ns" / "digits-01234567"))
    store.identify(home)
    good, gone = commit(home, 10), commit(home, 20)
    store.bury(gone)
    newer, given_up, attempt = (CheckpointDir(home, f"{step:012d}-e1-00ab") for step in (30, 40, 50))
    newer.store.create(newer.record("DECISION"), b'{"v":99}\n')
    store.decide_abort(given_up, step=40, epoch=1, reason="Timeout", nonce="n")
    store.write_intent(attempt, {"step": 50})
    told = storeops.run(home, {"op": "inventory"})
    (entry,) = told["found"]
    assert (told["storeId"], told["last"]) == (store.store_id(home), "")
    assert len(entry.pop("digest")) == 64
    expected = {"id": good.ckpt, "step": 10, "epoch": 1, "timeline": 0, "bytes": 9, "shards": 2, "copies": 2}
    assert entry == expected


def test_pages_follow_each_other_until_the_end(tmp_path, monkeypatch):
    """RS6: a beat is bounded, a store is not."""
    monkeypatch.setattr(inventory, "PAGE", 2)
    home = open_home(str(tmp_path / "ns" / "digits-01234567"))
    for step in range(1, 6):
        commit(home, step)
    after, steps, pages = "", [], 0
    while pages == 0 or after:
        told = storeops.run(home, {"op": "inventory", "after": after})
        steps += [entry["step"] for entry in told["found"]]
        after, pages = told["last"], pages + 1
    assert (steps, pages) == ([1, 2, 3, 4, 5], 3)


def test_an_empty_store_has_nothing_and_gets_nothing(tmp_path):
    """RS6."""
    home = open_home(str(tmp_path / "ns" / "digits-01234567"))
    assert storeops.run(home, {"op": "inventory"}) == {
        "storeId": "",
        "found": [],
        "timelines": [],
        "last": "",
    }
    assert list(tmp_path.rglob("*")) == []


def test_timelines_are_listed_and_each_number_is_given_once(tmp_path):
    """CK6, DE2, GC7: the same start gets the same number again; what is not readable counts for nothing."""
    home = open_home(str(tmp_path / "ns" / "digits-01234567"))
    args = {"op": "timeline", "after": 0, "parent": 0, "step": 20, "reason": "Resumed", "nonce": "a"}
    assert storeops.run(home, args) == {"number": 1}
    assert storeops.run(home, args) == {"number": 1}
    assert storeops.run(home, {**args, "nonce": "b"}) == {"number": 2}
    home.store.create(home.folder + "/timeline/000003", b"{")
    assert storeops.run(home, {**args, "after": 2, "parent": 2, "step": 30, "nonce": "c"}) == {"number": 4}
    found = storeops.run(home, {"op": "inventory"})["timelines"]
    assert [(each["number"], each["parent"], each["step"]) for each in found] == [
        (1, 0, 20),
        (2, 0, 20),
        (4, 2, 30),
    ]


def test_a_copied_folder_lists_the_same_under_another_trainer(tmp_path):
    """RS6: another store, another namespace, another uid."""
    home = open_home(str(tmp_path / "here" / "ns" / "digits-01234567"))
    store.identify(home)
    commit(home, 10)
    storeops.run(home, {"op": "timeline", "after": 0, "parent": 0, "step": 10, "reason": "R", "nonce": "a"})
    shutil.copytree(
        tmp_path / "here" / "ns" / "digits-01234567", tmp_path / "there" / "other" / "digits-89abcdef"
    )
    there = open_home(str(tmp_path / "there" / "other" / "digits-89abcdef"))
    first, second = (storeops.run(each, {"op": "inventory"}) for each in (home, there))
    assert (second["found"], second["timelines"]) == (first["found"], first["timelines"])
    assert len(second["found"]) == len(second["timelines"]) == 1
