"""Whatever is written into an object: an answer, never an exception; and names that always fit."""

import copy

from hypothesis import given
from hypothesis import strategies as st

import examples_api as examples
from trainer_operator.api import Role, Trainer, names
from trainer_operator.api.validation import validate

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=8,
)


def paths_of(value, path=()):
    """List all paths into a document."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found += paths_of(child, (*path, key))
    return found


PATHS = paths_of({"spec": examples.EVERYTHING["spec"]})


@given(path=st.sampled_from(PATHS), junk=JSON, remove=st.booleans())
def test_any_value_in_any_field_gives_errors_never_an_exception(path, junk, remove):
    """TR30: the schema is fuzzed, and optional blocks are missing in every combination."""
    obj = copy.deepcopy(examples.EVERYTHING)
    node = obj
    for part in path[:-1]:
        node = node[part]
    if remove:
        del node[path[-1]]
    else:
        node[path[-1]] = junk
    for error in validate(obj, examples.EVERYTHING):
        assert str(error)


@given(document=JSON)
def test_any_document_gives_errors_never_an_exception(document):
    """TR30."""
    assert validate(document)


@given(
    length=st.integers(1, 70),
    workers=st.integers(1, 10_000),
    bound=st.none() | st.integers(1, 10_000),
    servers=st.integers(0, 1000),
    copies=st.integers(1, 5),
    masters=st.integers(0, 1),
    data=st.data(),
)
def test_accepted_trainer_has_derived_names_that_fit(length, workers, bound, servers, copies, masters, data):
    """CR5, TR29, EC1."""
    topology = {
        "workers": workers,
        "parameterServers": servers,
        "replicationFactor": copies,
        "masters": masters,
    }
    obj = examples.trainer("metadata.name", "m" * length, "spec.topology", topology)
    if bound is not None:
        obj["spec"]["elastic"] = {"maxWorkers": max(bound, workers)}
    if validate(obj):
        assert length > 63 - len("-worker-9999-a9999")
        return
    most = {Role.WORKER: Trainer.read(obj).spec.most_workers, Role.PS: servers * copies, Role.MASTER: masters}
    for role, count in most.items():
        if count:
            index = data.draw(st.integers(0, count - 1))
            attempt = data.draw(st.integers(0, names.MAX_ATTEMPT))
            assert len(names.pod_name("m" * length, role, index, attempt)) <= 63
            assert all(
                len(value) <= 63 for value in names.pod_labels("m" * length, role, index, attempt).values()
            )
