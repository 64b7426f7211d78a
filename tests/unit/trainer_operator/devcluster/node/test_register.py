"""The Node object."""

from pathlib import Path

from trainer_operator.devcluster.node.host import NodeSettings
from trainer_operator.devcluster.node.register import needs_report, node_labels, node_status

SETTINGS = NodeSettings("n", Path("/none"), cpu="4", memory="8Gi", gpus=2)


def status(observed=None, now="2026-12-02T08:00:00Z", settings=SETTINGS):
    return node_status(settings, address="127.1.0.1", port=1, observed=observed or {}, now=now)


def test_pretended_gpus_are_capacity_with_a_label_that_says_so():
    assert status()["capacity"]["nvidia.com/gpu"] == "2"
    assert node_labels(SETTINGS)["trainer-operator.dev/pretend-gpus"] == "true"
    without = NodeSettings("n", Path("/none"))
    assert "trainer-operator.dev/pretend-gpus" not in node_labels(without)
    assert "nvidia.com/gpu" not in status(settings=without)["capacity"]


def test_heartbeat_alone_needs_no_report():
    assert not needs_report(status(now="2026-12-02T09:00:00Z"), status())


def test_node_that_was_given_up_reports_again_and_says_since_when():
    before = status()
    given_up = before | {"conditions": [c | {"status": "Unknown"} for c in before["conditions"]]}
    again = status(given_up, now="2026-12-02T09:00:00Z")
    assert needs_report(again, given_up)
    assert {c["lastTransitionTime"] for c in again["conditions"]} == {"2026-12-02T09:00:00Z"}
    assert {c["lastTransitionTime"] for c in status(before, "2026-12-02T09:00:00Z")["conditions"]} == {
        "2026-12-02T08:00:00Z"
    }


def test_volumes_that_a_node_without_power_went_on_using_are_given_back_on_its_return():
    """ND3: until then the attach-detach controller keeps them there."""
    before = status()
    assert before["volumesInUse"] == []
    assert needs_report(status(), before | {"volumesInUse": ["v"]})
    assert not needs_report(status(), {key: value for key, value in before.items() if key != "volumesInUse"})


def test_changed_capacity_is_reported():
    assert needs_report(status(), status(settings=NodeSettings("n", Path("/none"))))
