"""`kubectl trainer notebook`: its Secret, and what it tells of one that is not there."""

import base64

import pytest

from trainer_operator.cli.plugin.failure import Complaint, ExitCode
from trainer_operator.cli.plugin.notebook import (
    PORT,
    has_notebook,
    is_of_another,
    outlook,
    secret,
    secret_name,
    token_of,
)
from trainer_operator.trainer import notebook, notebookstate
from trainersample import trainer

TRAINER = trainer()


def stored(token, **metadata):
    data = {"token": base64.b64encode(token).decode()} if token is not None else {}
    return {"metadata": {"name": "digits-notebook", **metadata}, "data": data}


def test_what_it_knows_of_the_pod_is_what_the_operator_makes():
    """JK2: a copy, since the models of the API are slow to load."""
    assert notebook.PORT == PORT
    assert notebookstate.CONDITION == "NotebookReady"
    assert notebook.TOKEN_KEY in secret(TRAINER)["stringData"]


def test_each_secret_has_a_token_of_its_own_and_goes_with_its_trainer():
    """JK2: one token per kernel gateway, in a Secret."""
    one, two = secret(TRAINER), secret(TRAINER)
    assert one["metadata"]["name"] == secret_name(TRAINER) == "digits-notebook"
    assert one["stringData"] != two["stringData"]
    assert len(one["stringData"]["token"]) == 64
    (owner,) = one["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Trainer", "u-1")
    assert not is_of_another(one, TRAINER)


def test_a_secret_of_an_earlier_trainer_is_told_from_one_that_a_user_made():
    earlier = stored(b"x" * 32, ownerReferences=[{"kind": "Trainer", "uid": "u-0"}])
    assert is_of_another(earlier, TRAINER)
    assert not is_of_another(stored(b"x" * 32), TRAINER)


def test_a_good_token_is_taken():
    assert token_of(stored(b"a" * 32)) == "a" * 32


@pytest.mark.parametrize(
    "token", [None, b"", b"short", b"a" * 32 + b"\n", b"\xff" * 40, b"a" * 20 + b" " + b"b" * 20]
)
def test_a_token_that_a_gateway_would_not_take_is_refused_and_not_repeated(token):
    """RD2: and CR/LF reaches no header."""
    with pytest.raises(Complaint) as complaint:
        token_of(stored(token))
    assert complaint.value.code is ExitCode.NOT_NOW
    assert str(complaint.value) == (
        "Secret digits-notebook has no token of at least 32 printable characters under its key token: delete it, "
        "and this command makes a good one"
    )


def test_data_that_is_no_base64_is_refused():
    with pytest.raises(Complaint):
        token_of({"metadata": {"name": "x"}, "data": {"token": "%%%"}})


def test_without_the_field_it_says_how_to_ask_for_one():
    with pytest.raises(Complaint, match="kubectl patch trainer digits"):
        has_notebook(TRAINER)


def with_condition(status, reason, message=""):
    condition = {"type": "NotebookReady", "status": status, "reason": reason, "message": message}
    return {**TRAINER, "status": {"conditions": [condition]}}


def test_it_waits_for_what_can_still_come():
    assert outlook(with_condition("True", "Serving")) is None
    assert outlook(with_condition("False", "TokenMissing", "waits")) == "TokenMissing: waits"
    assert outlook(with_condition("False", "WaitsForTraining")) == "WaitsForTraining"
    assert outlook({**TRAINER, "status": {}}) == "the operator has not looked at its notebook yet"


@pytest.mark.parametrize(
    "reason", ["VariableRefused", "Refused", "ImageUnavailable", "Suspended", "Succeeded", "Failed"]
)
def test_it_does_not_wait_for_what_cannot_come(reason):
    """CL1."""
    with pytest.raises(Complaint, match=f"trainer/digits has no notebook now: {reason}: why"):
        outlook(with_condition("False", reason, "why"))
