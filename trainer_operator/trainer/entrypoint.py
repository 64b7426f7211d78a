"""The command of roles that name none: the entry point of their image, read from its registry once (AG2, IS4).

    no command ──registry answers──▶ status.images: digest, command, args ──▶ pods of exactly this digest
          └── cannot be read: the Trainer waits, says why and what to do

What was read stays in status, so later pods, another leader and a registry that is down see the same. Pure.
"""

from trainer_operator.api.meta import Role
from trainer_operator.api.status import ImageStatus, TrainerStatus
from trainer_operator.api.topology import RoleSettings
from trainer_operator.api.trainer import Trainer
from trainer_operator.images import EntryPoint, parse_reference
from trainer_operator.trainer.draft import Draft

CONTAINER = "trainer"
READING = "ReadingImage"
UNKNOWN = "CommandNotKnown"
RETRY = 15.0


def role_settings(trainer: Trainer, role: str) -> RoleSettings:
    """Return what a Trainer says of a role, which may be nothing."""
    return getattr(trainer.spec.topology.roles, role, None) or RoleSettings()


def image_of(trainer: Trainer, role: str) -> str:
    """Return the image of a role as it was given."""
    return role_settings(trainer, role).image or trainer.spec.image


def recorded(status: TrainerStatus, role: str) -> ImageStatus | None:
    """Return what was read of a role's image."""
    return next((each for each in status.images if each.role == role and each.container == CONTAINER), None)


def pinned(kept: ImageStatus) -> str:
    """Return the image that was read, whatever its tag points to by now."""
    return parse_reference(kept.tag).pinned(kept.digest or "")


def images_to_read(trainer: Trainer) -> frozenset[str]:
    """Return the images whose entry points are needed and not known yet."""
    return frozenset(image_of(trainer, role) for role in _open_roles(trainer, trainer.status))


def follow(draft: Draft) -> tuple[str, str] | None:
    """Keep what was read; return reason and sentence if a role can't start without it."""
    trainer, status = draft.observed.trainer, draft.status
    for role in _open_roles(trainer, status):
        image = image_of(trainer, role)
        found = draft.observed.entry_points.get(image)
        if isinstance(found, EntryPoint):
            others = tuple(each for each in status.images if (each.role, each.container) != (role, CONTAINER))
            status.images = (*others, _record(role, image, found))
        elif recorded(status, role) is None:
            draft.look_again(RETRY)
            return _missing(role, image, found)
    return None


def _open_roles(trainer: Trainer, status: TrainerStatus) -> list[str]:
    topology = trainer.spec.topology
    counts = {"master": topology.masters, "ps": topology.parameter_servers, "worker": topology.workers}
    found = []
    for role, count in counts.items():
        kept = recorded(status, role)
        if not count or role_settings(trainer, role).command or trainer.spec.command:
            continue
        if kept is None or kept.tag != image_of(trainer, role):
            found.append(role)
    return found


def _record(role: str, image: str, found: EntryPoint) -> ImageStatus:
    return ImageStatus(
        role=Role(role),
        container=CONTAINER,
        tag=image,
        digest=found.digest,
        command=found.command,
        args=found.args,
    )


def _missing(role: str, image: str, why: str | None) -> tuple[str, str]:
    if why is None:
        return READING, f"role {role} has no command: the entry point of image {image} is being read"
    return (
        UNKNOWN,
        f"role {role} has no command, and the entry point of image {image} cannot be read: {why}; set spec.command",
    )
