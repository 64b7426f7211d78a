"""Signatures: AWS's published examples, and botocore's signer on requests of any kind."""

from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.agent.backends.signature import Keys, Unsigned, sign

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = "examplebucket.s3.amazonaws.com"
DAY = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("request_", "signature"),
    [
        (
            Unsigned("GET", HOST, "/test.txt", (), {"Range": "bytes=0-9"}, b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            Unsigned(
                "PUT",
                HOST,
                "/test$file.text",
                (),
                {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
                b"Welcome to Amazon S3.",
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            Unsigned("GET", HOST, "/", (("lifecycle", ""),), {}, b""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            Unsigned("GET", HOST, "/", (("prefix", "J"), ("max-keys", "2")), {}, b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=lambda value: value.path if isinstance(value, Unsigned) else "",
)
def test_the_examples_of_the_specification_get_their_signatures(request_, signature):
    """BK, ADR 0007."""
    assert sign(request_, KEYS, region="us-east-1", now=DAY)["Authorization"].endswith(
        f"Signature={signature}"
    )


PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    key=st.text(
        st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="%"), min_size=1, max_size=60
    ),
    query=st.dictionaries(PRINTABLE, PRINTABLE, max_size=4),
    body=st.binary(max_size=100),
    token=st.sampled_from(["", "a/temporary+token=="]),
    region=st.sampled_from(["us-east-1", "eu-central-2"]),
)
def test_any_request_is_signed_as_botocore_signs_it(method, key, query, body, token, region):
    """BK, ADR 0007: an independent implementation agrees."""
    keys = Keys("access", "secret/with+signs", token)
    request = Unsigned(
        method, "store.example:9000", "/bucket/" + key, tuple(query.items()), {"Range": "bytes=0-9"}, body
    )
    ours = sign(request, keys, region=region, now=DAY)
    theirs = AWSRequest(
        method, "https://store.example:9000" + request.target, headers={"Range": "bytes=0-9"}, data=body
    )
    theirs.context["timestamp"] = ours["X-Amz-Date"]
    signer = S3SigV4Auth(Credentials(keys.access, keys.secret, token or None), "s3", region)
    theirs.headers["X-Amz-Date"] = ours["X-Amz-Date"]
    theirs.headers["X-Amz-Content-SHA256"] = ours["X-Amz-Content-Sha256"]
    if token:
        theirs.headers["X-Amz-Security-Token"] = token
    canonical = signer.canonical_request(theirs)
    text = signer.string_to_sign(theirs, canonical)
    assert ours["Authorization"].endswith(f"Signature={signer.signature(text, theirs)}")
