"""Where checkpoints go: the meaning of `checkpoint.bucket`.

Three forms and no others: a plain name is a PersistentVolumeClaim in the Trainer's namespace, `s3://…` an object
store, `file:///…` a directory of the node or of one machine. The patterns serve the CRD and this parser alike (CR3),
so they stay within what both RE2 and `re` read the same way.
"""

import re
from dataclasses import dataclass

CLAIM_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
S3_PATTERN = r"s3://[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-]+)*/?"
FILE_PATTERN = r"file:///[A-Za-z0-9_.+@-]+(/[A-Za-z0-9_.+@-]+)*/?"
BUCKET_PATTERN = f"^({CLAIM_PATTERN}|{S3_PATTERN}|{FILE_PATTERN})$"
TRAVERSAL_PATTERN = r"/\.\.?(/|$)"
MAX_LENGTH = 512

ALLOWED = (
    "give the name of a PersistentVolumeClaim in the namespace (pvc-backups), s3://bucket or s3://bucket/prefix, "
    "or file:///absolute/path"
)

_BUCKET = re.compile(BUCKET_PATTERN)
_TRAVERSAL = re.compile(TRAVERSAL_PATTERN)


class BadBucket(ValueError):
    """The text names no place for checkpoints; the message says what would."""


@dataclass(frozen=True, slots=True)
class ClaimBucket:
    """A PersistentVolumeClaim of the Trainer's namespace."""

    claim: str


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket of an S3-compatible store; the prefix has no slash at either end."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class FileBucket:
    """A directory, absolute and normalised."""

    path: str


Bucket = ClaimBucket | S3Bucket | FileBucket


def is_bucket(text: str) -> bool:
    """Tell whether the text is one of the three forms."""
    return (
        len(text) <= MAX_LENGTH
        and "\n" not in text
        and _BUCKET.match(text) is not None
        and _TRAVERSAL.search(text) is None
        and ("://" in text or len(text) <= 253)
    )


def parse_bucket(text: str) -> Bucket:
    """Read `checkpoint.bucket`.

    Raises: BadBucket, with the text and what is allowed.
    """
    if not is_bucket(text):
        msg = f"bucket {text!r} is not allowed: {ALLOWED}"
        raise BadBucket(msg)
    if text.startswith("s3://"):
        bucket, _, prefix = text.removeprefix("s3://").partition("/")
        return S3Bucket(bucket, prefix.rstrip("/"))
    if text.startswith("file://"):
        return FileBucket(text.removeprefix("file://").rstrip("/"))
    return ClaimBucket(text)
