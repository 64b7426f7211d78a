"""The chain of the audit trail: whatever is recorded verifies, and whatever is done to it afterwards shows."""

import json

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.audit.chain import (
    GENESIS,
    Entry,
    Head,
    canonical,
    hash_of,
    name_of,
    place_of,
    seal,
    verify,
    write_anchor,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
ANYTHING = st.text(st.characters(), max_size=40)
"""With halves of characters, too."""
CHAINS = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@st.composite
def entries(draw, chain="team"):
    return Entry(
        id=draw(st.text(min_size=1, max_size=20)),
        time="2026-01-01T00:00:00Z",
        actor="trainer-operator",
        action=draw(st.sampled_from(["Restart", "Fail", "StackDump"])),
        object={"apiVersion": "v1", "kind": "Trainer", "namespace": chain, "name": "t", "uid": "u"},
        details=draw(st.dictionaries(st.sampled_from(["reason", "message", "stacks"]), ANYTHING)),
    )


@st.composite
def chains(draw, least=1):
    return chain_of(draw(st.lists(entries(), min_size=least, max_size=8)))


def chain_of(listed, chain="team"):
    """Seal entries one behind the other, as the API server keeps them: sent and read back as JSON."""
    head, records = Head(), []
    for entry in listed:
        spec = json.loads(json.dumps(seal(entry, head)))
        records.append({"metadata": {"name": name_of(chain, spec["sequence"])}, "spec": spec})
        head = Head(spec["sequence"], spec["hash"])
    return records, {chain: write_anchor(head)}


def fault_of(records, anchors):
    (verdict,) = verify(records, anchors)
    return verdict.fault


@given(chains(), st.randoms())
def test_what_was_recorded_is_whole_in_whatever_order_it_is_read(made, rng):
    """AU4, AU5: of any text, also of control characters and of what is no character."""
    records, anchors = made
    rng.shuffle(records)
    (verdict,) = verify(records, anchors)
    assert verdict.fault is None
    assert (verdict.records, verdict.first, verdict.head.sequence) == (len(records), 1, len(records))


FIELDS = ["auditID", "time", "actor", "action", "previousHash", "hash"]


@given(chains(), st.data())
def test_a_field_that_was_changed_is_found_in_its_record(made, data):
    """ATK15: edited, back-dated; the first bad number is named."""
    records, anchors = made
    victim = data.draw(st.sampled_from(records))
    field = data.draw(st.sampled_from(FIELDS))
    old = victim["spec"][field]
    new = data.draw(st.sampled_from(["", "f" * 64, "2020-01-01T00:00:00Z", old[::-1], old + "x"]))
    if new == old:
        return
    victim["spec"][field] = new
    assert fault_of(records, anchors).sequence == victim["spec"]["sequence"]


@given(chains(), st.data())
def test_a_record_that_was_changed_and_sealed_anew_does_not_fit_into_the_chain(made, data):
    """ATK15: the next record, or the anchor, has the hash of what was there."""
    records, anchors = made
    victim = data.draw(st.sampled_from(records))
    victim["spec"]["details"] = {"reason": "nothing to see", "forged": "yes"}
    victim["spec"]["hash"] = hash_of(victim["spec"])
    number = victim["spec"]["sequence"]
    assert fault_of(records, anchors).sequence == min(number + 1, len(records))


@given(chains(), st.data())
def test_a_record_that_is_gone_is_missed_wherever_it_was(made, data):
    """ATK15: truncated in front, in the middle, and at the end, which only the anchor tells."""
    records, anchors = made
    gone = data.draw(st.sampled_from(records))
    left = [each for each in records if each is not gone]
    fault = fault_of(left, anchors)
    assert (fault.sequence, "missing" in fault.reason) == (gone["spec"]["sequence"], True)


@given(chains(least=2), st.data())
def test_records_that_changed_places_are_found(made, data):
    """ATK15: reordered, with names that fit their new places."""
    records, anchors = made
    first = data.draw(st.integers(0, len(records) - 2))
    one, two = records[first]["spec"], records[first + 1]["spec"]
    records[first]["spec"], records[first + 1]["spec"] = two, one
    assert fault_of(records, anchors).sequence == first + 1
    one["sequence"], two["sequence"] = two["sequence"], one["sequence"]
    assert fault_of(records, anchors).sequence == first + 1


@given(chains(least=3), st.data())
def test_the_oldest_may_be_removed_once_a_record_says_so_and_no_further(made, data):
    """AU5: also while the removal is not at its end."""
    records, _ = made
    through = data.draw(st.integers(1, len(records) - 1))
    last = records[-1]["spec"]
    details = {"through": str(through), "hash": records[through - 1]["spec"]["hash"]}
    spec = seal(
        Entry("team/pruned", last["time"], "trainer-operator", "Pruned", last["objectRef"], details),
        Head(last["sequence"], last["hash"]),
    )
    records.append({"metadata": {"name": name_of("team", spec["sequence"])}, "spec": spec})
    anchors = {"team": write_anchor(Head(spec["sequence"], spec["hash"]))}
    removed = data.draw(st.integers(0, through))
    assert fault_of(records[removed:], anchors) is None
    assert fault_of(records[through + 1 :], anchors).sequence == 1


@given(CHAINS, st.integers(1, 10**13))
def test_a_name_tells_chain_and_number(chain, sequence):
    """AU4: whatever the namespace is called, also if its name looks like that of a record."""
    assert place_of(name_of(chain, sequence)) == (chain, sequence)
    assert place_of(name_of(name_of(chain, 3), sequence)) == (name_of(chain, 3), sequence)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z]{1,6}", fullmatch=True), TEXTS | st.integers(0, 2**53 - 1)))
def test_canonical_json_says_the_same_and_does_not_depend_on_order(value):
    """AU4."""
    backwards = dict(reversed(value.items()))
    assert canonical(value) == canonical(backwards)
    assert json.loads(canonical(value)) == value
    assert b" " not in canonical(dict.fromkeys(value, 1))


def test_canonical_json_is_that_of_the_standard():
    """AU4: RFC 8785, 3.2.2 and 3.2.3: sorted names, no white space, short escapes, everything else as it is."""
    value = {"b": '\u20ac$\u000f\nA\'B"\\\\"/', "a": {"z": 1, "y": "\x7f\u2028"}}
    expected = '{"a":{"y":"\x7f\u2028","z":1},"b":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    assert canonical(value) == expected.encode()


def test_the_first_record_stands_on_zeros():
    records, _ = chain_of([Entry("x", "t", "a", "Restart", {"namespace": "team"}, {})])
    assert records[0]["spec"]["previousHash"] == GENESIS
