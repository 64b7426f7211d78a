"""Environment and command line of a container."""

import pytest

from trainer_operator.devcluster.node.environment import (
    Facts,
    Source,
    Unresolved,
    command_line,
    compose,
    expand,
    pod_field,
    sources_of,
)

FACTS = Facts("127.1.0.2", "127.1.0.1", {"memory": "2Gi"})
POD = {
    "metadata": {
        "name": "pod",
        "namespace": "ns",
        "uid": "u",
        "labels": {"b": "2", "a": 'x"y'},
        "annotations": {"k/e.y": "v"},
    },
    "spec": {
        "nodeName": "n",
        "containers": [{"name": "other", "resources": {"limits": {"cpu": "2"}}}],
    },
}


def composed(env, contents=None, env_from=(), given=None):
    container = {"name": "c", "env": env, "envFrom": env_from}
    return compose(container, POD, facts=FACTS, contents=contents or {}, given=given or {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(MISSING)", "$(MISSING)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("end$", "end$"),
        ("$()", "$()"),
        ("", ""),
    ],
)
def test_references_are_replaced_as_kubernetes_does(text, expected):
    assert expand(text, {"A": "1"}) == expected


def test_value_sees_only_what_is_before_it():
    env = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "b"}, {"name": "C", "value": "$(B)$(G)"}]
    assert composed(env, given={"G": "g"}) == {"G": "g", "A": "$(B)", "B": "b", "C": "bg"}


def test_later_entries_win_over_sources_and_sources_over_what_is_given():
    contents = {Source("ConfigMap", "m"): {"A": b"map", "B": b"map"}}
    result = composed(
        [{"name": "B", "value": "own"}],
        contents,
        [{"configMapRef": {"name": "m"}}],
        {"A": "given", "B": "given", "C": "given"},
    )
    assert result == {"A": "map", "B": "own", "C": "given"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "pod"),
        ("metadata.labels['b']", "2"),
        ("metadata.annotations['k/e.y']", "v"),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'a="x\\"y"\nb="2"'),
        ("status.podIP", "127.1.0.2"),
        ("status.hostIP", "127.1.0.1"),
    ],
)
def test_field_of_the_downward_api(path, value):
    assert pod_field(POD, path, FACTS) == value


def test_unknown_field_is_named():
    with pytest.raises(Unresolved, match=r'unsupported fieldPath "spec\.tolerations"'):
        pod_field(POD, "spec.tolerations", FACTS)


def test_resource_of_another_container_and_of_the_node_where_no_limit_is_set():
    env = [
        {
            "name": "CPU",
            "valueFrom": {"resourceFieldRef": {"containerName": "other", "resource": "limits.cpu"}},
        },
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "REQ", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory"}}},
    ]
    assert composed(env) == {"CPU": "2", "MEM": "2048", "REQ": "0"}


@pytest.mark.parametrize(
    ("value_from", "sentence"),
    [
        ({"secretKeyRef": {"name": "s", "key": "k"}}, 'secret "s" not found'),
        ({"configMapKeyRef": {"name": "m", "key": "k"}}, "couldn't find key k in ConfigMap m"),
        ({"resourceFieldRef": {"resource": "limits.tpu"}}, 'unsupported container resource "limits.tpu"'),
        (
            {"resourceFieldRef": {"containerName": "x", "resource": "limits.cpu"}},
            'container "x" not found in pod',
        ),
        ({"fileKeyRef": {"path": "p"}}, "do not know valueFrom.fileKeyRef"),
    ],
)
def test_what_cannot_be_resolved_is_named(value_from, sentence):
    contents = {Source("Secret", "s"): None, Source("ConfigMap", "m"): {}}
    with pytest.raises(Unresolved, match=sentence):
        composed([{"name": "X", "valueFrom": value_from}], contents)


def test_optional_references_may_be_missing():
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]
    contents = {Source("Secret", "s"): None, Source("ConfigMap", "m"): None}
    assert composed(env, contents, [{"configMapRef": {"name": "m", "optional": True}}]) == {}


def test_all_sources_are_named():
    container = {
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B"}],
        "envFrom": [{"configMapRef": {"name": "m"}}],
    }
    assert sources_of(container) == {Source("Secret", "s"), Source("ConfigMap", "m")}


def test_command_and_arguments_are_expanded_and_arguments_alone_are_no_command():
    env = {"A": "1"}
    assert command_line({"command": ["x", "$(A)"], "args": ["$(A)"]}, env) == ["x", "1", "1"]
    assert command_line({"args": ["$(A)"]}, env) == []
