"""One connection of an agent to a real server that closes it."""

import json

import pytest

from integration.agent.scripted import TOKEN
from trainer_operator.agent.link import Connection, NoAnswer, tls_context

BEAT = {"role": "worker", "idx": 0, "boot": "b", "acks": [], "results": [], "hold": 0}


@pytest.fixture
def connection(operator, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    made = Connection(operator.url, context=tls_context(operator.ca), token_file=str(tmp_path / "token"))
    yield made
    made.close()


def beat(seq):
    return json.dumps({**BEAT, "seq": seq}).encode()


def test_a_beat_on_a_connection_that_was_closed_meanwhile_is_posted_again_at_once(operator, connection):
    """AG8, TX: the server may close an idle connection at any time; that is no failure."""
    for seq in range(1, 4):
        connection.post(beat(seq), hold=0)
        operator.cut()
    connection.post(beat(4), hold=0)
    assert (operator.posts, operator.beat("worker-0")["seq"]) == (4, 4)


def test_a_server_that_is_gone_is_a_failure(operator, connection):
    """TX3: one more try, then it is the next address's turn."""
    connection.post(beat(1), hold=0)
    operator.stop()
    try:
        with pytest.raises(NoAnswer):
            connection.post(beat(2), hold=0)
    finally:
        operator.start()


def test_a_new_connection_that_is_closed_without_an_answer_is_a_failure(operator, connection):
    """TX3: a server that closes each connection must not be asked in a circle."""

    def hang_up(_beat, _authorization):
        operator.cut()
        return 200, {}, b"{}"

    operator.answer_with = hang_up
    with pytest.raises(NoAnswer):
        connection.post(beat(1), hold=0)
    assert operator.posts == 1
    operator.answer_with = None
    connection.post(beat(2), hold=0)
    operator.answer_with = hang_up
    with pytest.raises(NoAnswer):
        connection.post(beat(3), hold=0)
    assert operator.posts == 4
