"""Whole pages, as written where there is no terminal: tests/golden/plugin/."""

from pathlib import Path

import pytest

from trainer_operator.cli.plugin import checkpoints, describe, events, listing
from trainer_operator.cli.plugin.treedata import MemberLine, RoleLine, poor_tree, view
from trainer_operator.cli.plugin.treepage import changes, page
from trainersample import NOW, checkpoint, event, operators_tree, pod, pods, trainer

GOLDEN = Path(__file__).parents[4] / "golden" / "plugin"


def poor(made, its_pods):
    return view(poor_tree(made, its_pods), made, its_pods, from_operator=False)


def happenings(made):
    return events.aggregate(
        events.belonging(
            made,
            ["digits-on-demand"],
            [
                event("Trainer", "digits", "EpochStarted", "members start together", uid="u-1"),
                event("Trainer", "digits", "EpochStarted", "of an earlier Trainer", uid="u-0"),
                event("Pod", "digits-worker-1", "OOMKilled", "out of\nmemory", at="12:07:50", type="Warning"),
                event(
                    "Pod",
                    "digits-worker-1",
                    "OOMKilled",
                    "out of\nmemory",
                    at="12:07:00",
                    type="Warning",
                    count=2,
                ),
                event("Pod", "digits-two-worker-1", "Killing", "of another Trainer"),
                event(
                    "Checkpoint",
                    "digits-000000001068-e2-ab12",
                    "CheckpointCommitted",
                    "at step 1068",
                    at="12:06:00",
                ),
                event("Checkpoint", "digits-on-demand", "CheckpointAborted", "too late", at="12:06:30"),
                event("Node", "digits", "NodeNotReady", "no"),
            ],
        )
    )


def saved():
    newest, reused, held, given_up = (checkpoint(step) for step in (1068, 1058, 1048, 1038))
    newest["status"] |= {"health": "Corrupt", "epoch": 2, "storeId": "0123456789abcdef"}
    reused["status"] |= {"reusedBytes": 1400000, "verified": "Full", "lastVerified": "2026-01-01T12:06:00Z"}
    reused["status"] |= {"copies": 2, "shards": 1, "committedAt": "2026-01-01T12:05:00Z"}
    held["spec"]["hold"] = True
    given_up["status"] = {
        "state": "GarbageCollected",
        "step": 1038,
        "conditions": [{"type": "Aborted", "status": "True", "reason": "EpochEnded"}],
    }
    return [newest, reused, held, given_up]


def pages():
    made = trainer()
    calm = trainer("mnist", phase="Running", restarts=0, created="2025-12-20T00:00:00Z", readyServers=None)
    calm["spec"]["topology"]["parameterServers"] = 0
    return {
        "tree": page(view(operators_tree(), made, pods(), from_operator=True), NOW),
        "tree-from-status": page(poor(made, pods()), NOW),
        "list": listing.table([calm], NOW),
        "list-wide": listing.table([made, calm], NOW, everywhere=True, wide=True),
        "checkpoints": [
            *checkpoints.table(made, saved(), NOW, wide=True),
            checkpoints.restore_line(made, saved()),
        ],
        "events": events.table(happenings(made), NOW),
        "describe": describe.page(
            made,
            poor(made, pods()),
            [checkpoint(step) for step in range(1068, 1000, -10)],
            happenings(made),
            NOW,
        ),
    }


@pytest.mark.parametrize("name", pages())
def test_page_reads_as_stored(name):
    """CL1, ST4, EV1: aligned, without colours, without secrets, without what belongs to others."""
    written = "".join(f"{line.plain}\n" for line in pages()[name])
    assert written == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, {}),
        ({"stepsPerSecond": 2.5}, {"Speed": "2.5 steps/s"}),
        (
            {"stepsPerSecond": 0.4, "percent": 37.5, "estimatedCompletionTime": "2026-01-01T13:40:00Z"},
            {
                "Speed": "0.4 steps/s",
                "Estimated end": "in 90m, at 2026-01-01 13:40 UTC, 37.5% of all steps are done",
            },
        ),
        ({"percent": 100}, {}),
    ],
)
def test_describe_says_how_fast_it_goes_and_when_it_will_be_done_as_far_as_that_is_known(progress, shown):
    made = trainer(phase="Running", **({"progress": progress} if progress else {}))
    lines = [line.plain.strip() for line in describe.page(made, poor(made, pods()), [], [], NOW)]
    found = {label: text.strip() for label, _, text in (line.partition(":") for line in lines)}
    assert {label: found[label] for label in ("Speed", "Estimated end") if label in found} == shown


def test_no_page_shows_the_value_of_a_variable():
    """RD2."""
    assert "hunter2" not in "".join(line.plain for lines in pages().values() for line in lines)


def test_large_roles_are_folded_but_members_in_trouble_are_shown():
    """CR10: 100 workers, number 77 is suspect."""
    made = trainer(suspects=["worker-77"], members=[])
    made["spec"]["topology"] = {"workers": 100}
    its_pods = [pod("worker", index) for index in range(100)]
    folded = [line.plain for line in page(poor(made, its_pods), NOW)]
    assert sum("● worker-" in line for line in folded) == 15
    assert any("▲ worker-77" in line for line in folded)
    assert folded[-1].split() == ["└─", "…", "84", "more", "84", "Ready"]
    full = [line.plain for line in page(poor(made, its_pods), NOW, full=True)]
    assert sum("worker-" in line and "●" in line for line in full) == 99


def test_a_trainer_without_members_says_so():
    """TR06."""
    assert page(poor(trainer(phase="Suspended"), []), NOW)[-1].plain == "└─ no members"


def test_a_state_of_a_later_version_is_shown_without_a_look_of_its_own():
    """CR10."""
    tree = view(operators_tree(), trainer(), [], from_operator=True)
    odd = MemberLine("worker-0", "Dreaming", "", None, None, None, 0, None, ())
    changed = tree.__class__(**{**fields(tree), "roles": (RoleLine("worker", 0, 1, "Dreaming", (odd,)),)})
    assert "? worker-0  Dreaming" in page(changed, NOW)[-1].plain


def fields(tree):
    return {name: getattr(tree, name) for name in tree.__dataclass_fields__}


def test_changes_are_told_in_a_line_each_and_steps_alone_are_none():
    """ST4, CL1: for readers without a terminal."""
    made = trainer(members=[])
    before = poor(made, [pod("worker", 0), pod("worker", 1), pod("worker", 2)])
    stepped = poor(
        trainer(members=[], globalStep=2000), [pod("worker", 0), pod("worker", 1), pod("worker", 2)]
    )
    assert changes(before, stepped) == []
    done = trainer(phase="Failed", reason="BackoffLimitExceeded", message="too many failures", members=[])
    crashed = pod("worker", 0, phase="Failed", reason="Evicted")
    assert changes(before, poor(done, [crashed, pod("worker", 1, 1)])) == [
        "digits Recovering -> Failed at step 1090 (too many failures)",
        "worker-0 Ready -> Lost (Evicted)",
        "worker-1 is now pod digits-worker-1-a1",
        "worker-2 is gone",
        "ps-0 is gone",
    ]
    assert changes(poor(done, []), before)[1] == "worker-0 appeared, Ready"
