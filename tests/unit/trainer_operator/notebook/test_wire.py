"""Messages by websocket, and what becomes of them (JK1)."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator import notebook
from trainer_operator.notebook.faults import AnswerMalformed, GatewayFault, KernelLost, UrlRefused
from trainer_operator.notebook.gateway import checked_url
from trainer_operator.notebook.outputs import Execution, Output, OutputKind
from trainer_operator.notebook.wire import Message, decode_text, decode_v1, encode_text, encode_v1

JSON = st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none(), max_size=4)
MESSAGES = st.builds(Message, channel=st.text(), header=JSON, content=JSON, parent=JSON, metadata=JSON)


@given(MESSAGES)
def test_what_is_written_is_read_again(message):
    """JK1: in both forms."""
    assert decode_v1(encode_v1(message)) == message
    assert decode_text(encode_text(message)) == message


def test_the_newer_form_is_laid_out_as_servers_read_it():
    """JK1: number of offsets, offsets of channel, header, parent, metadata, content and the end; then those."""
    data = encode_v1(Message("shell", {"msg_id": "1"}, {"code": "x"}))
    count = int.from_bytes(data[:8], "little")
    offsets = [int.from_bytes(data[8 * at : 8 * at + 8], "little") for at in range(1, count + 1)]
    parts = [data[begin:end] for begin, end in itertools.pairwise(offsets)]
    assert parts[0] == b"shell"
    assert [json.loads(part) for part in parts[1:]] == [{"msg_id": "1"}, {}, {}, {"code": "x"}]
    assert offsets[-1] == len(data)


def test_a_binary_message_of_the_older_form_is_read_without_its_buffers():
    text = encode_text(Message("iopub", {"msg_type": "x"}, {"a": 1})).encode()
    head = b"".join(number.to_bytes(4, "big") for number in (2, 12, 12 + len(text)))
    assert decode_text(head + text + b"buffer").content == {"a": 1}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_fault(data):
    """JK1, UC2: nothing else comes of what a gateway sends."""
    for read in (decode_v1, decode_text):
        try:
            read(data)
        except AnswerMalformed:
            pass


@given(MESSAGES, st.data())
def test_a_damaged_message_is_a_message_or_a_fault(message, data):
    sent = bytearray(encode_v1(message))
    sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_v1(bytes(sent))
    except AnswerMalformed:
        pass


@pytest.mark.parametrize("text", ["", "[]", "{", '{"header": 1}', '{"header": {}, "content": "x"}'])
def test_text_that_is_no_message_is_a_fault(text):
    with pytest.raises(AnswerMalformed):
        decode_text(text)


# -- what a run of code puts out


def said(kind, content, channel="iopub", parent="1"):
    return Message(channel, {"msg_type": kind}, content, {"msg_id": parent})


REPLY = said("execute_reply", {"status": "ok"}, "shell")
IDLE = said("status", {"execution_state": "idle"})


@pytest.mark.parametrize("order", [(REPLY, IDLE), (IDLE, REPLY)])
def test_code_is_done_once_the_kernel_has_replied_and_is_idle(order):
    """JK1: two channels, in any order."""
    execution = Execution("1")
    execution.take(said("status", {"execution_state": "busy"}))
    for message in order:
        assert not execution.is_done
        execution.take(message)
    assert execution.is_done


@pytest.mark.parametrize(
    ("message", "output"),
    [
        (said("stream", {"name": "stdout", "text": "a"}), Output(OutputKind.STDOUT, "a")),
        (said("stream", {"name": "stderr", "text": "a"}), Output(OutputKind.STDERR, "a")),
        (said("execute_result", {"data": {"text/plain": "2"}}), Output(OutputKind.RESULT, "2")),
        (said("display_data", {"data": {"image/png": "x"}}), Output(OutputKind.RESULT, "")),
        (said("error", {"traceback": ["a", "b"]}), Output(OutputKind.ERROR, "a\nb")),
        (said("error", {"ename": "E", "evalue": "v"}), Output(OutputKind.ERROR, "E: v")),
        (said("stream", {"name": "stdout", "text": "a"}, parent="2"), None),
        (said("clear_output", {}), None),
    ],
)
def test_outputs_of_this_run_are_returned_and_those_of_others_not(message, output):
    assert Execution("1").take(message) == output


def test_an_aborted_run_is_done_with_an_error():
    execution = Execution("1")
    assert execution.take(said("execute_reply", {"status": "aborted"}, "shell")).kind is OutputKind.ERROR
    assert execution.is_done


@pytest.mark.parametrize("state", ["dead", "restarting"])
def test_a_kernel_that_ends_ends_the_run(state):
    with pytest.raises(KernelLost):
        Execution("1").take(said("status", {"execution_state": state}, parent=""))


@pytest.mark.parametrize(
    "message",
    [
        said("stream", {"text": 1}),
        said("execute_result", {"data": []}),
        said("execute_result", {"data": {"text/plain": {}}}),
    ],
)
def test_an_output_of_another_shape_is_a_fault(message):
    with pytest.raises(AnswerMalformed):
        Execution("1").take(message)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://127.0.0.1",
        "127.0.0.1:8888",
        "http://",
        "http://user:secret@127.0.0.1",
        "http://127.0.0.1:x",
        "http://[::1",
        "http://127.0.0.1/?token=secret",
    ],
)
def test_an_address_that_is_none_of_a_gateway_is_refused_and_not_repeated(url):
    """ATK16, NE3, RD2."""
    with pytest.raises(UrlRefused) as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


def test_what_is_exported_is_one_tree_of_faults_and_what_is_used():
    faults = {name for name in notebook.__all__ if isinstance(getattr(notebook, name), type)}
    assert faults == set(notebook.__all__)
    assert all(
        issubclass(getattr(notebook, name), GatewayFault)
        for name in notebook.__all__
        if name not in {"Gateway", "Output", "OutputKind"}
    )
