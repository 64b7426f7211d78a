"""The Secret as it is mounted, and the addresses of stores: each mistake is one sentence."""

import pytest

from trainer_operator.agent.backends import BadAddress, BadKey, HomeOpener, NoRights, open_home
from trainer_operator.agent.backends.access import read_endpoint, read_keys
from trainer_operator.agent.backends.http import SignedClient


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir()

    def fill(**content):
        for name, text in content.items():
            (folder / name).write_text(text)
        return str(folder)

    return fill


@pytest.mark.parametrize(
    ("content", "bucket", "netloc", "path"),
    [
        ({}, "training", "training.s3.us-east-1.amazonaws.com", ""),
        ({"AWS_REGION": "eu-west-3\n"}, "training", "training.s3.eu-west-3.amazonaws.com", ""),
        ({"AWS_REGION": "eu-west-3"}, "a.b", "s3.eu-west-3.amazonaws.com", "/a.b"),
        ({"AWS_ENDPOINT_URL": "https://minio.storage:9000"}, "training", "minio.storage:9000", "/training"),
        ({"AWS_ENDPOINT_URL": "http://10.0.0.7/s3/"}, "training", "10.0.0.7", "/s3/training"),
        ({"AWS_ENDPOINT_URL": "https://[fd00::7]:9000"}, "training", "[fd00::7]:9000", "/training"),
    ],
)
def test_a_bucket_is_found_by_region_or_endpoint(secret, content, bucket, netloc, path):
    """BK."""
    endpoint = read_endpoint(secret(**content), bucket)
    assert (endpoint.netloc, endpoint.path) == (netloc, path)
    assert endpoint.region == content.get("AWS_REGION", "us-east-1").strip()


@pytest.mark.parametrize(
    "url",
    ["minio:9000", "ftp://minio", "https://", "https://minio:port", "https://user@minio", "https://m?x=1"],
)
def test_an_endpoint_of_another_form_is_refused(secret, url):
    """One sentence."""
    with pytest.raises(BadAddress, match="AWS_ENDPOINT_URL in the Secret is"):
        read_endpoint(secret(AWS_ENDPOINT_URL=url), "training")


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        ({}, "AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": " "}, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_secret_that_lacks_a_key_is_named(secret, content, missing):
    """TN3."""
    with pytest.raises(NoRights, match=f"has no {missing}"):
        read_keys(secret(**content))


def test_keys_are_read_anew_so_that_a_rotated_secret_is_used(secret):
    """TN3."""
    folder = secret(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    assert read_keys(folder).token == ""
    secret(AWS_ACCESS_KEY_ID="c", AWS_SESSION_TOKEN="d")
    assert (read_keys(folder).access, read_keys(folder).token) == ("c", "d")


def test_an_authority_that_is_no_certificate_is_refused(secret):
    """One sentence."""
    folder = secret(**{"ca.crt": "not a certificate", "AWS_ENDPOINT_URL": "https://minio"})
    with pytest.raises(BadAddress, match="holds no certificate in PEM"):
        SignedClient(read_endpoint(folder, "b"), keys=lambda: None, now=lambda: None)


@pytest.mark.parametrize(
    ("address", "error", "sentence"),
    [
        ("", BadAddress, "no store mounted"),
        ("relative/path", BadAddress, "must be an absolute directory or s3://bucket/prefix"),
        ("gs://bucket/t", BadAddress, "'gs://bucket/t' names no store that this agent knows"),
        ("memory://a/t", BadAddress, "names no store"),
        ("s3://bucket", BadAddress, "no folder in it"),
        ("s3://bucket/../other/t", BadKey, "could leave the store"),
        ("s3://bucket//t", BadKey, "could leave the store"),
        ("/a/../t", BadAddress, "must be absolute"),
        ("/a/..", BadKey, "could leave the store"),
        ("s3://bucket/ns/t", NoRights, "has no AWS_ACCESS_KEY_ID"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_sentence(address, error, sentence):
    """TN10."""
    with pytest.raises(error, match=sentence):
        open_home(address)


def test_a_home_is_opened_at_its_first_use_and_a_corrected_secret_is_enough(secret):
    """TN3: no new pod is needed."""
    folder = secret(AWS_ACCESS_KEY_ID="a")
    opener = HomeOpener("s3://bucket/ns/t-0123", folder)
    with pytest.raises(NoRights):
        opener()
    secret(AWS_SECRET_ACCESS_KEY="b")
    home = opener()
    assert opener() is home
    assert (home.store.address, home.folder) == ("s3://bucket/ns/", "t-0123")


def test_a_directory_s_home_lies_beside_those_of_other_trainers(tmp_path):
    """CK layout."""
    home = open_home(str(tmp_path / "ns" / "t-0123"))
    assert (home.store.address, home.folder) == (str(tmp_path / "ns"), "t-0123")
