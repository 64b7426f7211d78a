"""The figures that the rules name, as figures: behaviour is tested elsewhere, in terms of these."""

import dataclasses
import math

import pytest

from runtime import health, manager, workqueue
from runtime.backoff import Backoff
from runtime.cache import informer, reflector
from runtime.client import ClientConfig, Timeouts, pager, transport
from runtime.client import retry as retrying
from runtime.events import correlator, recorder
from runtime.leaderelection import driver, elector
from runtime.leaderelection.step import JITTER, Terms

CONFIG = ClientConfig("https://api")
BACKOFF = Backoff()
TERMS = Terms("me")


@pytest.mark.parametrize(
    ("rule", "figures", "expected"),
    [
        ("W3", (pager.PAGE_SIZE, pager.SLICE_SIZE), (500, 100)),
        ("W4", reflector._WATCH_TIMEOUTS, (300, 600)),
        (
            "W10",
            (BACKOFF.base, BACKOFF.factor, BACKOFF.cap, BACKOFF.jitter, BACKOFF.reset_after),
            (0.8, 2.0, 30.0, 1.0, 120.0),
        ),
        ("W11", (CONFIG.timeouts.watch_grace, CONFIG.timeouts.watch_silence), (5.0, 70.0)),
        ("W12", CONFIG.max_line, 16 << 20),
        ("W13", reflector._INITIAL_SILENCE, 30.0),
        ("S6", informer.RESYNC_PERIOD, 36_000.0),
        ("S9", (manager.SYNC_DEADLINE, health.LAG_LIMIT), (120.0, 5.0)),
        ("Q2", (workqueue.LONGEST_DELAY, workqueue.HEARTBEAT), (31_536_000.0, 10.0)),
        ("R8", (recorder.QUEUE_SIZE, recorder.TRIES), (1000, 12)),
        ("R8", (correlator.ALIKE_LIMIT, correlator.ALIKE_WINDOW), (10, 600.0)),
        ("R8", (correlator.BURST, correlator.REFILL_PERIOD, correlator.TABLE_SIZE), (25, 300.0, 4096)),
        ("R8", (correlator.LONGEST_MESSAGE, correlator.LONGEST_REASON), (1024, 128)),
        (
            "L1",
            (TERMS.lease_duration, TERMS.renew_deadline, TERMS.retry_period, JITTER),
            (15.0, 10.0, 2.0, 1.2),
        ),
        ("L5", driver.ATTEMPT_TIMEOUT, 5.0),
        ("L8", elector.STALE_GRACE, 20.0),
        ("K1", transport._TLS_CHECK_PERIOD, 60.0),
        ("K2", retrying.MAX_TRIES, 10),
        ("K3", (CONFIG.in_flight, CONFIG.qps), (64, None)),
        ("P2", (manager.DRAIN_DEADLINE, manager.FLUSH_DEADLINE), (30.0, 2.0)),
    ],
)
def test_defaults_are_those_of_the_rules(rule, figures, expected):
    """W3, W4, W10, W11, W12, W13, S6, S9, Q2, R8, L1, L5, L8, K1, K2, K3, P2: change a rule first, then a figure."""
    assert figures == expected, rule


def test_no_deadline_of_a_request_is_endless():
    """K8, RT2: nor so long that it would be the same."""
    deadlines = dataclasses.asdict(Timeouts())
    assert all(math.isfinite(seconds) and 0 < seconds <= 180 for seconds in deadlines.values()), deadlines


def test_a_stop_fits_into_a_pods_grace():
    """P2: 45 s, with the lease given back and a server stopped."""
    took = (
        manager.DRAIN_DEADLINE + manager.FLUSH_DEADLINE + elector.RELEASE_DEADLINE + manager.CLEANUP_DEADLINE
    )
    assert took < 45
