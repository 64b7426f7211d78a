"""Which checkpoints lie on the current path, once training went back behind some of them (CK6). Pure.

    timeline 0   ──10──20──30──40          went back to 20: timeline 1 begins there
    timeline 1         └───25──35──45      went back to 35: timeline 2
    timeline 2                 └───37      the path: 37, 35, 25, 20, 10

A restart takes the highest step of the path, never the highest one there is: what was left would win again. Timeline 0
has no record; the last record is the current timeline.
"""

from collections.abc import Collection, Mapping, Sequence

from trainer_operator.api.status import Timeline

Path = Mapping[int, int | None]
"""By timeline of the path, the last step of it that counts; None: all of them."""
KEPT = 64
"""Records that a status keeps at most."""


def current_timeline(timelines: Sequence[Timeline]) -> int:
    """Return the number of the timeline that training goes on in."""
    return timelines[-1].number if timelines else 0


def current_path(timelines: Sequence[Timeline]) -> Path:
    """Return what of which timeline counts: the current one, and of each ancestor what is before the branch."""
    records = {each.number: each for each in timelines}
    number = current_timeline(timelines)
    path: dict[int, int | None] = {number: None}
    limit: int | None = None
    while number in records and records[number].parent not in path:  # an agent may have read nonsense
        limit = records[number].step if limit is None else min(limit, records[number].step)
        number = records[number].parent
        path[number] = limit
    return path


def is_on_path(path: Path, timeline: int, step: int) -> bool:
    """Whether a checkpoint of that timeline and step counts."""
    if timeline not in path:
        return False
    limit = path[timeline]
    return limit is None or step <= limit


def opened(timelines: Sequence[Timeline], new: Timeline, *, used: Collection[int]) -> list[Timeline]:
    """Return the records with a new timeline as the current one, without those that nothing needs any more.

    `used` are the timelines of checkpoints that exist. Guarantees: what is on the path, now and after any later branch
    from a checkpoint that exists, is the same with and without what is left out.
    """
    kept = [each for each in timelines if each.number != new.number] + [new]
    for gone in [each for each in kept[:-1] if each.number not in used]:
        kept = [_past(each, gone) for each in kept if each is not gone]
    return kept[-KEPT:]


def _past(child: Timeline, gone: Timeline) -> Timeline:
    """Return a record that refers to the parent of what is left out."""
    if child.parent != gone.number:
        return child
    return child.model_copy(update={"parent": gone.parent, "step": min(child.step, gone.step)})
