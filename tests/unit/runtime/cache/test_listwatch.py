"""The table of list and watch, row by row."""

import pytest

from runtime.cache.listwatch import (
    BackOff,
    Cause,
    Closed,
    Empty,
    Failed,
    GiveUp,
    InitialWatch,
    Known,
    List,
    Listed,
    Listing,
    Progress,
    Publish,
    RefreshCredentials,
    Refused,
    Report,
    Started,
    Watch,
    Watching,
    WatchInitial,
    cause_of,
    step,
)
from runtime.client.errors import TransportError, TransportFault, error_of_status
from runtime.client.stream import LineTooLong, WatchSilent
from runtime.errors import RuntimeFault

KNOWN = Known(seen="50", published=True)
WATCHING = Watching(KNOWN, settled=True)


def test_the_first_list_asks_for_any_version():
    """W2."""
    assert step(Empty(), Started(), 0.0) == (Listing(Known(), "0"), (List("0", paged=True),))


def test_the_watch_starts_at_the_version_of_the_list_itself():
    """W6, RT12: objects at 7, 3 and 9 in a list at 8 do not matter."""
    state, actions = step(Listing(Known(), "0"), Listed("8", paged=False), 0.0)
    assert state == Watching(Known(seen="8", published=True), settled=True)
    assert actions == (Publish("8"), Watch("8"))


def test_a_list_older_than_what_was_seen_is_not_published():
    """W2 (k8s#59848)."""
    state, actions = step(Listing(KNOWN, "50"), Listed("49", paged=False), 0.0)
    assert state == Listing(KNOWN, "")
    assert actions == (Report(Cause.STALE, relist=True), BackOff(), List("", paged=True))


def test_a_quorum_list_is_believed_even_if_history_went_back():
    """W2: after a backup was restored there is no newer truth."""
    state, actions = step(Listing(KNOWN, ""), Listed("49", paged=True), 0.0)
    assert state == Watching(Known(seen="49", published=True, paged=True), settled=True)
    assert actions[0] == Publish("49")


@pytest.mark.parametrize("cause", [Cause.EXPIRED, Cause.TOO_LARGE])
def test_a_list_at_an_unusable_version_asks_for_the_newest(cause):
    """W2."""
    state, actions = step(Listing(KNOWN, "50"), Failed(cause), 0.0)
    assert state == Listing(KNOWN, "")
    assert actions == (Report(cause, relist=True), BackOff(), List("", paged=True))


def test_a_refused_first_list_is_final():
    """S8, RT18."""
    assert step(Listing(Known(), "0"), Failed(Cause.REJECTED), 0.0) == (Refused(), (GiveUp(Cause.REJECTED),))


def test_a_refused_later_list_is_tried_again():
    """W16."""
    state, actions = step(Listing(KNOWN, "50"), Failed(Cause.REJECTED), 0.0)
    assert state == Listing(KNOWN, "50")
    assert actions[-1] == List("50", paged=False)


def test_a_list_answered_401_gets_fresh_credentials():
    """W8, RT10."""
    _, actions = step(Listing(KNOWN, "50"), Failed(Cause.UNAUTHORIZED), 0.0)
    assert actions[1:] == (RefreshCredentials(), BackOff(), List("50", paged=False))


@pytest.mark.parametrize(
    "cause", [Cause.THROTTLED, Cause.UNREACHABLE, Cause.SERVER, Cause.FORBIDDEN, Cause.UNKNOWN]
)
def test_a_list_that_failed_otherwise_is_repeated_at_its_version(cause):
    """W2."""
    state, actions = step(Listing(KNOWN, "50"), Failed(cause, retry_after=3.0), 0.0)
    assert state == Listing(KNOWN, "50")
    assert actions == (Report(cause, relist=True), BackOff(3.0), List("50", paged=False))


def test_pages_at_a_set_version_only_once_the_server_has_shown_to_page():
    """W3."""
    state, _ = step(Listing(Known(), "0"), Listed("8", paged=True), 0.0)
    _, actions = step(state, Failed(Cause.UNKNOWN), 0.0)
    assert actions[-1] == List("8", paged=True)


def test_progress_moves_the_version_and_never_back():
    """W5."""
    state, actions = step(WATCHING, Progress("60", only_added=False), 0.0)
    assert (state.known.seen, actions) == ("60", ())
    state, _ = step(state, Progress("59", only_added=True), 0.0)
    assert state.known.seen == "60"


def test_an_unordered_burst_moves_no_version_until_it_has_ended():
    """W6."""
    state, _ = step(Listing(Known(), "0"), Listed("0", paged=False), 0.0)
    assert not state.settled
    state, _ = step(state, Progress("9", only_added=True), 0.0)
    assert state.known.seen == "0"
    state, _ = step(state, Progress("11", only_added=False), 0.0)
    assert (state.known.seen, state.settled) == ("11", True)


def test_a_watch_that_ended_in_order_resumes_without_waiting():
    """W4, RT6."""
    for closed in (Closed(lasted=400.0, heard=False), Closed(lasted=0.1, heard=True)):
        assert step(WATCHING, closed, 0.0) == (WATCHING, (Report(Cause.CLOSED, relist=False), Watch("50")))


def test_a_watch_that_ended_at_once_and_empty_is_a_failure():
    """W10, RT3."""
    assert step(WATCHING, Closed(lasted=0.1, heard=False), 0.0) == (
        WATCHING,
        (Report(Cause.SHORT, relist=False), BackOff(), Watch("50")),
    )


@pytest.mark.parametrize("cause", [Cause.EXPIRED, Cause.TOO_LARGE])
def test_an_expired_watch_lists_at_the_newest_version(cause):
    """W7, RT4, RT5: never at the expired one."""
    state, actions = step(WATCHING, Failed(cause), 0.0)
    assert state == Listing(KNOWN, "")
    assert actions == (Report(cause, relist=True), BackOff(), List("", paged=True))


@pytest.mark.parametrize(
    "cause",
    [Cause.THROTTLED, Cause.UNREACHABLE, Cause.CUT, Cause.SILENT, Cause.FORBIDDEN],
    ids=lambda c: c.value,
)
def test_a_watch_that_could_not_go_on_resumes_after_a_pause_without_a_list(cause):
    """W8, W9, W11, RT1, RT7, RT17."""
    assert step(WATCHING, Failed(cause, retry_after=2.0), 0.0) == (
        WATCHING,
        (Report(cause, relist=False), BackOff(2.0), Watch("50")),
    )


def test_a_watch_answered_401_gets_fresh_credentials_and_its_version_back():
    """W8, RT10."""
    _, actions = step(WATCHING, Failed(Cause.UNAUTHORIZED), 0.0)
    assert actions[1:] == (RefreshCredentials(), BackOff(), Watch("50"))


def test_server_errors_are_borne_for_30_seconds_then_listed():
    """W8, RT11."""
    state, actions = step(WATCHING, Failed(Cause.SERVER), 100.0)
    assert actions[-1] == Watch("50")
    state, actions = step(state, Failed(Cause.SERVER), 130.0)
    assert actions[-1] == Watch("50")
    state, actions = step(state, Failed(Cause.SERVER), 130.1)
    assert (state, actions[-1]) == (Listing(KNOWN, "50"), List("50", paged=False))


def test_an_event_between_server_errors_starts_the_patience_anew():
    """W8."""
    state, _ = step(WATCHING, Failed(Cause.SERVER), 100.0)
    state, _ = step(state, Progress("51", only_added=True), 120.0)
    _, actions = step(state, Failed(Cause.SERVER), 140.0)
    assert actions[-1] == Watch("51")


@pytest.mark.parametrize("cause", [Cause.OVERSIZE, Cause.UNKNOWN, Cause.REJECTED])
def test_what_a_watch_cannot_get_past_is_listed(cause):
    """W8, W12, RT9."""
    state, actions = step(WATCHING, Failed(cause), 0.0)
    assert state == Listing(KNOWN, "50")
    assert actions[1:] == (BackOff(), List("50", paged=False))


def test_what_cannot_happen_is_a_defect():
    """W1."""
    with pytest.raises(ValueError, match="Listed cannot happen in state Empty"):
        step(Empty(), Listed("1", paged=False), 0.0)


def status(code, reason="", **details):
    return error_of_status({"kind": "Status", "code": code, "reason": reason, "details": details})


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (status(410, "Expired"), Cause.EXPIRED),
        (status(410, "Gone"), Cause.EXPIRED),
        (status(410), Cause.EXPIRED),
        (status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]), Cause.TOO_LARGE),
        (
            error_of_status({"code": 504, "message": "Too large resource version: 9, current: 8"}),
            Cause.TOO_LARGE,
        ),
        (status(504, "Timeout"), Cause.SERVER),
        (status(500, "InternalError"), Cause.SERVER),
        (status(429, "TooManyRequests"), Cause.THROTTLED),
        (status(503, "ServiceUnavailable"), Cause.UNREACHABLE),
        (status(401, "Unauthorized"), Cause.UNAUTHORIZED),
        (status(403, "Forbidden"), Cause.FORBIDDEN),
        (status(400, "BadRequest"), Cause.REJECTED),
        (status(418), Cause.UNKNOWN),
        (TransportError("x", fault=TransportFault.CONNECT), Cause.UNREACHABLE),
        (TransportError("x", fault=TransportFault.TIMEOUT), Cause.UNREACHABLE),
        (TransportError("x", fault=TransportFault.RESET), Cause.CUT),
        (WatchSilent("x"), Cause.SILENT),
        (LineTooLong("x"), Cause.OVERSIZE),
        (RuntimeFault("x"), Cause.UNKNOWN),
    ],
)
def test_every_failure_has_one_cause(error, cause):
    """W7, W8, RT8."""
    assert cause_of(error).cause is cause


def test_the_servers_wish_to_wait_is_kept():
    """W8, K2."""
    assert cause_of(status(429, "TooManyRequests", retryAfterSeconds=7)) == Failed(Cause.THROTTLED, 7.0)


NEXT = (List, Watch, WatchInitial)
STATES = [
    Listing(Known(), "0"),
    Listing(KNOWN, "50"),
    Listing(KNOWN, ""),
    InitialWatch(Known(), 0),
    InitialWatch(Known(), 1),
    WATCHING,
    Watching(Known(seen="0"), settled=False),
]


@pytest.mark.parametrize("state", STATES, ids=str)
@pytest.mark.parametrize("cause", Cause)
def test_whatever_fails_is_reported_once_and_followed_by_one_request_at_most_after_a_pause(state, cause):
    """W1, W10, W16: the table has a row for every failure in every state, and none of them spins."""
    for now in (0.0, 1e6):
        following, actions = step(state, Failed(cause), now)
        if isinstance(following, Refused):
            assert (cause, state) == (Cause.REJECTED, Listing(Known(), "0"))
            assert actions == (GiveUp(cause),)
            continue
        assert isinstance(actions[-1], NEXT)
        assert not any(isinstance(action, NEXT) for action in actions[:-1])
        assert [type(action) for action in actions].count(Report) == 1
        gives_up_streaming = isinstance(state, InitialWatch) and isinstance(following, Listing)
        was_pause_itself = isinstance(state, InitialWatch) and cause is Cause.STALLED
        paused = any(isinstance(action, BackOff) for action in actions)
        assert paused is not (gives_up_streaming or was_pause_itself)
        assert isinstance(following, Listing) is isinstance(actions[-1], List)
