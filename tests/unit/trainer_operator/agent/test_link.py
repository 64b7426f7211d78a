"""The pure parts of the link: addresses, delays, the bucket and the token file."""

import random

import pytest

from trainer_operator.agent.link import Addresses, Backoff, Bucket, Refused, read_token, tls_context


def test_every_address_is_tried_before_a_wait():
    """TX3."""
    addresses = Addresses(("https://a", "https://b", "https://c"))
    turns = [(addresses.turn(), addresses.current) for _ in range(4)]
    assert turns == [(False, "https://b"), (False, "https://c"), (True, "https://a"), (False, "https://b")]
    addresses.works()
    assert [addresses.turn() for _ in range(3)] == [False, False, True]


def test_delays_grow_with_jitter_and_stay_below_the_cap():
    """TX2: full jitter, 0.2 to 5 s."""
    backoff = Backoff(0.2, 5.0, rng=random.Random(1))
    delays = [backoff.next() for _ in range(200)]
    assert all(0.2 <= delay <= 5.0 for delay in delays)
    assert max(delays[20:]) > 4.0
    assert delays[0] <= 0.4
    backoff.reset()
    assert backoff.next() <= 0.4


def test_the_bucket_stays_within_the_operator_s_limits():
    """AA7: 2 a second, burst 10, over all connections."""
    now = 0.0
    bucket = Bucket(lambda: now)
    sent = []
    for _ in range(100):
        now += bucket.take()
        sent.append(now)
    assert sent[7] == 0.0
    for first in range(100):
        for last in range(first, 100):
            assert last - first + 1 <= 10 + 2 * (sent[last] - sent[first])


@pytest.mark.parametrize("content", [None, b"", b"  \n", b"\xff\xfe", b"a\x00b", b"two\nlines"])
def test_a_token_that_is_none_is_refused(tmp_path, content):
    """AA1: no request goes out with a broken header."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refused, match="token"):
        read_token(str(path))


def test_a_token_is_read_without_its_line_end(tmp_path):
    """AA1."""
    (tmp_path / "token").write_text("abc.def\n")
    assert read_token(str(tmp_path / "token")) == "abc.def"


def test_a_broken_authority_is_one_sentence():
    """AA1: rather than trusting everybody."""
    with pytest.raises(ValueError, match="TRAINER_OPERATOR_CA is not the PEM text"):
        tls_context("nonsense")
