"""Lines out of chunks, and lists out of bodies."""

import gc

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.client.errors import Gone, ResponseMalformed
from runtime.client.pager import SLICE_SIZE, decode_in_slices, list_all, split_page
from runtime.client.stream import LineSplitter, LineTooLong
from runtime.tasks import TaskScope
from runtime.testing.simloop import simulated


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_do_not_depend_on_where_chunks_end(lines, data):
    """W12."""
    body = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    splitter = LineSplitter(limit=100)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += splitter.feed(body[start:end])
    assert found == [line for line in lines if line.strip()]
    assert splitter.remainder == b"rest"


def test_a_line_over_the_limit_is_refused_before_it_is_complete():
    """W12, RT9."""
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"x" * 10 + b"\n") == [b"x" * 10]
    splitter.feed(b"y" * 10)
    with pytest.raises(LineTooLong, match="10 bytes"):
        splitter.feed(b"y")
    with pytest.raises(LineTooLong):
        LineSplitter(limit=10).feed(b"a\n" + b"z" * 11 + b"\nb")


def body(items, *, version="5", token=None, kind="PodList"):
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return orjson.dumps({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items})


def test_a_page_is_cut_without_being_decoded():
    """W3."""
    page = split_page(body([{"a": 1}, {"b": 2}], token="t"))
    assert [bytes(item) for item in page.items] == [b'{"a":1}', b'{"b":2}']
    assert (page.resource_version, page.continue_token, page.kind, page.api_version) == (
        "5",
        "t",
        "Pod",
        "v1",
    )


def test_an_empty_list_of_go_is_null():
    """PY9."""
    assert (
        split_page(b'{"kind":"PodList","metadata":{"resourceVersion":"1","continue":""},"items":null}').items
        == []
    )


@pytest.mark.parametrize(
    "answer", [b"", b"{", b"[]", b'{"kind":"Table"}', b'{"kind":"Pod"}', b'{"kind":"PodList","items":7}']
)
def test_what_is_no_list_is_refused(answer):
    """W14."""
    with pytest.raises(ResponseMalformed):
        split_page(answer)


@simulated
async def test_long_lists_let_others_run_between_slices():
    """W3, PY2, RT42."""
    turns = []

    async def other():
        import asyncio

        while True:
            turns.append(len(decoded))
            await asyncio.sleep(0)

    decoded = []

    def decode(raw):
        assert not gc.isenabled()
        decoded.append(raw)
        return orjson.loads(memoryview(raw))

    items = [msgspec.Raw(b"%d" % number) for number in range(5 * SLICE_SIZE)]
    async with TaskScope() as scope:
        scope.spawn(other(), name="other")
        assert await decode_in_slices(items, decode) == list(range(5 * SLICE_SIZE))
        scope.cancel()
    assert set(turns) >= {SLICE_SIZE, 2 * SLICE_SIZE, 3 * SLICE_SIZE}
    assert gc.isenabled()


class Pages:
    """Serves bodies in turn and remembers the questions."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, params):
        self.asked.append(dict(params))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def decode(_page, raw):
    return orjson.loads(memoryview(raw))


@simulated
async def test_pages_follow_the_token_until_it_is_empty():
    """W3."""
    pages = Pages(body([1], token="t1"), body([2], token="t2"), body([3]))
    listing = await list_all(pages, decode, version="0", limit=500)
    assert (listing.items, listing.resource_version, listing.paged) == ([1, 2, 3], "5", True)
    assert pages.asked == [
        {"resourceVersion": "0", "limit": "500"},
        {"continue": "t1", "limit": "500"},
        {"continue": "t2", "limit": "500"},
    ]


@simulated
async def test_a_set_version_means_not_older_than():
    """W2."""
    pages = Pages(body([1]))
    listing = await list_all(pages, decode, version="7", limit=0)
    assert not listing.paged
    assert pages.asked == [{"resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"}]


@simulated
async def test_an_expired_token_starts_over_with_one_full_list():
    """W3."""
    pages = Pages(body([1], token="t1"), Gone("expired", status=410), body([2, 3], version="9"))
    listing = await list_all(pages, decode, version="", limit=1)
    assert (listing.items, listing.resource_version) == ([2, 3], "9")
    assert pages.asked[-1] == {}


@simulated
async def test_an_expired_version_is_the_callers_to_handle():
    """W2."""
    with pytest.raises(Gone):
        await list_all(Pages(Gone("expired", status=410)), decode, version="7")
