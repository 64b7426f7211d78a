"""Levels of topology: which node label a name means, and what is said of a name that means none."""

import pytest

from trainer_operator.trainer.levels import BUILT_IN, CONFIG_KEY, Level, Unresolved, configured, resolve

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DOMAIN = "accelerator.topograph.run/domain"


@pytest.mark.parametrize(
    ("name", "carried", "label"),
    [
        ("zone", {HOST, ZONE}, ZONE),
        ("node", {HOST, ZONE}, HOST),
        ("nvlink", {HOST, "nvidia.com/gpu.clique"}, "nvidia.com/gpu.clique"),
        ("nvlink", {HOST, "nvidia.com/gpu.clique", DOMAIN}, DOMAIN),
        ("nvlink", {HOST}, HOST),
        ("tier-0", {HOST, "topology.k8s.aws/network-node-layer-3"}, "topology.k8s.aws/network-node-layer-3"),
        ("tier-1", {HOST, "cloud.google.com/gce-topology-block"}, "cloud.google.com/gce-topology-block"),
    ],
)
def test_a_level_is_the_first_of_its_labels_that_nodes_have(name, carried, label):
    """TP6, placement.md §1: first hit wins."""
    assert resolve(name, BUILT_IN, carried) == label


def test_a_name_that_nobody_knows_is_answered_with_those_that_are():
    """TP5, SC11."""
    found = resolve("rack", BUILT_IN, {HOST})
    assert isinstance(found, Unresolved)
    known = "zone, tier-2, tier-1, tier-0, nvlink, node"
    assert found.message.startswith(f"topology level rack is not known, only {known};")
    assert "ConfigMap trainer-topology" in found.message


def test_a_level_that_no_node_is_labelled_for_is_answered_with_those_that_are_labelled():
    """TP5, SC11."""
    found = resolve("tier-2", BUILT_IN, {HOST, ZONE})
    assert isinstance(found, Unresolved)
    assert "fabric.topograph.run/tier-2, topology.k8s.aws/network-node-layer-1" in found.message
    assert found.message.endswith("levels that nodes have: zone, nvlink, node")
    assert resolve("zone", BUILT_IN, set()).message.endswith("levels that nodes have: none")


def test_a_preference_may_find_no_labels_but_not_a_name_that_nobody_knows():
    """TP5: a preference falls back, a slip of the pen is told."""
    assert resolve("tier-2", BUILT_IN, {HOST}, optional=True) == "fabric.topograph.run/tier-2"
    assert isinstance(resolve("teir-2", BUILT_IN, {HOST}, optional=True), Unresolved)


def test_configured_levels_come_first_and_replace_their_namesakes():
    """TP6: what is said of bandwidth and the like is for a scheduler of our own."""
    text = """
    - {name: rack, labels: [example.com/rack, example.com/old-rack], bandwidthGBps: 50, failureDomain: true}
    - {name: zone, labels: [example.com/hall]}
    """
    levels = configured({CONFIG_KEY: text})
    assert levels[:2] == (
        Level("rack", ("example.com/rack", "example.com/old-rack")),
        Level("zone", ("example.com/hall",)),
    )
    assert [level.name for level in levels[2:]] == ["tier-2", "tier-1", "tier-0", "nvlink", "node"]
    assert resolve("rack", levels, {"example.com/old-rack"}) == "example.com/old-rack"


def test_an_empty_configuration_changes_nothing():
    """TP6."""
    assert configured({}) == configured({CONFIG_KEY: ""}) == BUILT_IN


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{name: rack", "levels is no YAML list of levels, each with name and labels"),
        ("name: rack", "levels is no YAML list of levels, each with name and labels"),
        ("[rack]", "levels[0]: entry: "),
        ("[{name: Rack!, labels: [a]}]", "levels[0]: name: "),
        ("[{name: rack}]", "levels[0]: labels: "),
        ("[{name: rack, labels: []}]", "levels[0]: level rack has no labels"),
        ("[{name: rack, labels: [a]}, {name: rack, labels: [b]}]", "levels names a level twice: rack, rack"),
    ],
)
def test_what_is_no_list_of_levels_is_one_sentence(text, told):
    """TP6, rule 7 of the architecture."""
    with pytest.raises(ValueError, match=r"^levels") as caught:
        configured({CONFIG_KEY: text})
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)
