"""Entry points in the background: read once, remembered, retried."""

import asyncio

import pytest

from runtime.objects import ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from trainer_operator.images import entrypoints as module
from trainer_operator.images.entrypoints import LIMIT, EntryPoints
from trainer_operator.images.registry import EntryPoint, RegistryError

KEY, OTHER = ObjectKey("ns", "t"), ObjectKey("ns", "u")
FOUND = EntryPoint("sha256:" + "0" * 64, ("train",), ())


class Reader:
    """A registry whose answers a test gives."""

    def __init__(self):
        self.asked = []
        self.outcome = FOUND
        self.open = asyncio.Event()
        self.open.set()

    async def entry_point(self, image):
        self.asked.append(image.repository)
        await self.open.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Case:
    def __init__(self):
        self.clock, self.reader, self.woken = SimClock(), Reader(), []
        self.points = EntryPoints(self.reader, self.clock, wake=self.woken.append)

    async def look(self, image="ghcr.io/train:1", key=KEY):
        """Look an image up, then let everything that is due happen; return what was known at first."""
        known = self.points.look_up(image, key)
        for _ in range(20):
            await asyncio.sleep(0)
        return known


@pytest.fixture
async def case():
    made = Case()
    async with TaskScope() as scope:
        scope.spawn(made.points.run(), name="run")
        yield made
        scope.cancel()


async def test_an_image_is_read_in_the_background_and_all_who_asked_are_woken(case):
    """AG2: a reconcile never waits for a registry, and one image is read once at a time."""
    case.reader.open.clear()
    assert await case.look() is None
    assert await case.look(key=OTHER) is None
    assert case.woken == []
    case.reader.open.set()
    assert await case.look() is None
    assert sorted(case.woken) == [KEY, OTHER]
    assert await case.look() == FOUND
    assert case.reader.asked == ["train"]


async def test_a_tag_is_believed_for_a_minute_and_a_digest_for_ever(case):
    """AG2: cached by digest."""
    by_digest = f"ghcr.io/other@{FOUND.digest}"
    for image in ("ghcr.io/train:1", by_digest):
        await case.look(image)
    case.clock.advance(59)
    for image in ("ghcr.io/train:1", by_digest):
        assert await case.look(image) == FOUND
    assert len(case.reader.asked) == 2
    case.clock.advance(2)
    for image in ("ghcr.io/train:1", by_digest):
        assert await case.look(image) == FOUND
    assert case.reader.asked == ["train", "other", "train"]


async def test_a_failure_is_told_in_a_sentence_and_tried_again_with_growing_delays(case):
    """AG2: registry down."""
    case.reader.outcome = RegistryError("registry ghcr.io answered 503")
    await case.look()
    times = []
    for second in range(700):
        case.clock.advance(1)
        before = len(case.reader.asked)
        assert await case.look() == "registry ghcr.io answered 503"
        if len(case.reader.asked) > before:
            times.append(second + 1)
    assert times == [15, 45, 105, 225, 465]
    assert case.woken == [KEY]  # the same failure again is no news
    case.reader.outcome = FOUND
    case.clock.advance(300)
    await case.look()
    assert case.woken == [KEY, KEY]
    assert await case.look() == FOUND


async def test_a_reference_that_is_none_is_told_without_asking_anybody(case):
    """AG2."""
    await case.look("Not An Image")
    assert "is no reference" in await case.look("Not An Image")
    assert case.reader.asked == []


async def test_a_registry_that_never_answers_is_told_and_blocks_nobody(case, monkeypatch):
    """AG2, IS11: others are read meanwhile."""
    monkeypatch.setattr(module, "TIME_LIMIT", 0.01)
    case.reader.open.clear()
    await case.look("slow.example/train:1")
    deadline = asyncio.get_running_loop().time() + 60
    while case.points.look_up("slow.example/train:1", KEY) is None:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    case.reader.open.set()
    assert "slow.example took longer than" in await case.look("slow.example/train:1")
    await case.look()
    assert await case.look() == FOUND


async def test_images_beyond_the_bound_wait_until_others_are_read(case):
    """TR18: what is being read is kept, so that nothing is read twice and nothing piles up."""
    case.reader.open.clear()
    for number in range(LIMIT + 1):
        case.points.look_up(f"ghcr.io/train:{number}", KEY)
    assert case.points.look_up(f"ghcr.io/train:{LIMIT}", KEY) is None
    case.reader.open.set()
    for _ in range(LIMIT):
        await asyncio.sleep(0)
    assert len(case.reader.asked) == LIMIT
    await case.look(f"ghcr.io/train:{LIMIT}")
    assert await case.look(f"ghcr.io/train:{LIMIT}") == FOUND


async def test_memory_is_bounded(case):
    """TR18: the names are the tenants'."""
    for number in range(LIMIT + 50):
        await case.look(f"ghcr.io/train:{number}")
    assert await case.look("ghcr.io/train:0") is None
    assert await case.look(f"ghcr.io/train:{LIMIT + 49}") == FOUND
