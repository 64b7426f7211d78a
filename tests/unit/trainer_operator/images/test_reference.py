"""References to images."""

import pytest

from trainer_operator.images.reference import BadReference, Reference, parse_reference

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python", Reference("docker.io", "library/python", "latest", "")),
        ("team/train:2", Reference("docker.io", "team/train", "2", "")),
        ("index.docker.io/python", Reference("docker.io", "library/python", "latest", "")),
        ("ghcr.io/team/sub/train:v1.2", Reference("ghcr.io", "team/sub/train", "v1.2", "")),
        ("localhost/train", Reference("localhost", "train", "latest", "")),
        ("host:5000/train:1", Reference("host:5000", "train", "1", "")),
        ("[::1]:5000/train", Reference("[::1]:5000", "train", "latest", "")),
        (f"ghcr.io/train@{DIGEST}", Reference("ghcr.io", "train", "latest", DIGEST)),
        (f"ghcr.io/train:1@{DIGEST}", Reference("ghcr.io", "train", "1", DIGEST)),
    ],
)
def test_a_reference_is_read_as_runtimes_do(text, expected):
    """AG2, IS3."""
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Train",
        "ghcr.io/team/../secret",
        "ghcr.io//train",
        "ghcr.io/train:",
        "ghcr.io/train:a/b",
        "ghcr.io/train@md5:00",
        f"ghcr.io/train@{DIGEST}0",
        "user:word@ghcr.io/train",
        "http://ghcr.io/train",
        "gh cr.io/train",
        "ghcr.io:port/train",
        "",
        "/train",
    ],
)
def test_what_names_no_image_is_one_sentence(text):
    """AG2, ATK16."""
    with pytest.raises(BadReference, match="image "):
        parse_reference(text)


def test_docker_hub_is_asked_at_its_registry():
    """AG2."""
    assert parse_reference("python").host == "registry-1.docker.io"
    assert parse_reference("ghcr.io/train").host == "ghcr.io"


def test_a_pinned_reference_names_the_digest_alone():
    """IS4: and is itself a reference to the same."""
    pinned = parse_reference("team/train:2").pinned(DIGEST)
    assert pinned == f"docker.io/team/train@{DIGEST}"
    assert parse_reference(pinned).wanted == DIGEST
