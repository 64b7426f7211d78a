"""What the operator reads of images in their registries: the entry point, for Trainers that name no command (AG2).

Registries are named by tenants, so everything here treats them as hostile: addresses are checked when a connection is
made, answers are bounded in size and time, and what has a digest is checked against it.
"""

from trainer_operator.images.entrypoints import EntryPoints
from trainer_operator.images.reference import BadReference, Reference, parse_reference
from trainer_operator.images.registry import EntryPoint, Registry, RegistryError, registry_url

__all__ = [
    "BadReference",
    "EntryPoint",
    "EntryPoints",
    "Reference",
    "Registry",
    "RegistryError",
    "parse_reference",
    "registry_url",
]
