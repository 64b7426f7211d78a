"""Timelines: whatever training went back to, in whatever order, and whatever was collected meanwhile."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.api.status import Timeline
from trainer_operator.api.timelines import current_path, current_timeline, is_on_path, opened


@dataclass(frozen=True)
class Saved:
    """A checkpoint, and all that came before it in the training that made it."""

    timeline: int
    step: int
    history: tuple["Saved", ...]


class Story:
    """A training that saves, loses checkpoints to retention, and goes back, told twice: with records and in full."""

    def __init__(self):
        self.records: list[Timeline] = []
        self.there: list[Saved] = []
        self.history: tuple[Saved, ...] = ()

    def save(self, gap):
        step = (self.history[-1].step if self.history else 0) + gap
        saved = Saved(current_timeline(self.records), step, self.history)
        self.history = (*self.history, saved)
        self.there.append(saved)

    def collect(self, index):
        if self.there:
            del self.there[index % len(self.there)]

    def go_back(self, index):
        if not self.there:
            return
        chosen = self.there[index % len(self.there)]
        number = current_timeline(self.records) + 1
        new = Timeline(number=number, parent=chosen.timeline, step=chosen.step)
        self.records = opened(self.records, new, used={each.timeline for each in self.there})
        self.history = (*chosen.history, chosen)

    def on_path(self):
        path = current_path(self.records)
        return [each for each in self.there if is_on_path(path, each.timeline, each.step)]


ACTS = st.one_of(
    st.tuples(st.just("save"), st.integers(1, 9)),
    st.tuples(st.just("collect"), st.integers(0, 30)),
    st.tuples(st.just("go_back"), st.integers(0, 30)),
)


def play(acts):
    story = Story()
    for name, number in acts:
        getattr(story, name)(number)
    return story


@given(st.lists(ACTS, max_size=60))
def test_on_the_path_is_what_the_present_training_came_from_and_nothing_else(acts):
    """CK6, IV4: records that were left out are not missed."""
    story = play(acts)
    assert story.on_path() == [each for each in story.there if each in story.history]


@given(st.lists(ACTS, max_size=60), st.integers(1, 9))
def test_steps_rise_strictly_within_a_timeline_if_the_next_is_above_the_path(acts, gap):
    """IV5: as a save is aimed above the highest step of the path."""
    story = play(acts)
    latest = max((each.step for each in story.on_path()), default=0)
    mine = [each.step for each in story.there if each.timeline == current_timeline(story.records)]
    assert all(step < latest + gap for step in mine)
    assert mine == sorted(set(mine))


@given(st.lists(ACTS, max_size=60))
def test_the_current_timeline_never_loses_its_number(acts):
    """CK6: a number is not used twice."""
    story, last = Story(), 0
    for name, number in acts:
        getattr(story, name)(number)
        assert current_timeline(story.records) in {last, last + 1}
        last = current_timeline(story.records)


@given(
    st.lists(st.builds(Timeline, number=st.integers(0, 5), parent=st.integers(0, 5), step=st.integers(0, 9)))
)
def test_records_that_make_no_sense_still_have_a_path(records):
    """CK5: a store may hold anything."""
    path = current_path(records)
    assert path[current_timeline(records)] is None
    assert is_on_path(path, current_timeline(records), 7)


def test_the_example_of_the_docstring():
    """CK6."""
    records = [Timeline(number=1, parent=0, step=20), Timeline(number=2, parent=1, step=35)]
    there = {0: [10, 20, 30, 40], 1: [25, 35, 45], 2: [37]}
    path = current_path(records)
    found = [step for number, steps in there.items() for step in steps if is_on_path(path, number, step)]
    assert sorted(found, reverse=True) == [37, 35, 25, 20, 10]
