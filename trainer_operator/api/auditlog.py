"""AuditLog: one decision that was made, in a chain of hashes; see `trainer_operator.audit.chain` (AU1, AU4, AU6)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from trainer_operator.api.meta import ApiModel, ApiObject, Int32, Int64, ShortText, Time
from trainer_operator.api.rules import TransitionRule

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
DETAIL = 8192
"""Characters of one detail."""
Detail = Annotated[str, StringConstraints(max_length=DETAIL)]


class AuditReference(ApiModel):
    """The object that a decision is about."""

    api_version: ShortText
    """Its group and version."""
    kind: ShortText
    """Its kind."""
    namespace: ShortText
    """Its namespace, which also names the chain."""
    name: ShortText
    """Its name."""
    uid: ShortText
    """Its unique id."""


class AuditLogSpec(ApiModel):
    """What was decided. It is never changed."""

    sequence: Int64
    """Number in its chain, from 1."""
    audit_id: Annotated[str, StringConstraints(min_length=1, max_length=256), Field(alias="auditID")]
    """What happened; it is recorded once, whoever leads."""
    time: Time
    """When it was decided."""
    actor: ShortText
    """Who decided."""
    action: ShortText
    """What was done: Restart, Fail, StackDump, RecordsLost or Pruned."""
    object_ref: AuditReference
    """The object that it is about."""
    details: Annotated[dict[str, Detail], Field(max_length=16)]
    """More about it, without secrets."""
    previous_hash: Hash
    """Hash of the record before it in the chain; zeros for the first one."""
    hash: Hash
    """SHA-256 of previousHash and all other fields as canonical JSON (RFC 8785)."""
    hash_version: Int32
    """How the hash is made; this is version 1."""

    transition_rules: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="self == oldSelf",
            message="an AuditLog can't be changed",
            allows=lambda old, new: old == new,
        ),
    )


class AuditLog(ApiObject):
    """One decision of the operator, in a chain of hashes that shows changes; the operator alone writes it."""

    kind: Literal["AuditLog"] = "AuditLog"
    spec: AuditLogSpec
    """What was decided. It is never changed."""
