"""The places where checkpoints are kept, behind one small protocol: directories and buckets.

The layout (module `store`) knows keys and outcomes only; what a system call, an HTTP status or a lost answer means is
decided here, once. Standard library only: the agent runs in any image that has Python.
"""

from trainer_operator.agent.backends.errors import (
    BadAddress,
    BadKey,
    Conflict,
    Exists,
    Full,
    NoConditionalWrites,
    NoRights,
    NotFound,
    Passing,
    StoreChanged,
    StoreError,
    Throttled,
    TooLarge,
    Unreachable,
)
from trainer_operator.agent.backends.opening import Home, HomeOpener, OpenHome, open_home
from trainer_operator.agent.backends.protocol import Content, Entry, Page, Store, every_entry, every_folder
from trainer_operator.agent.backends.retrying import RetryingStore

__all__ = [
    "BadAddress",
    "BadKey",
    "Conflict",
    "Content",
    "Entry",
    "Exists",
    "Full",
    "Home",
    "HomeOpener",
    "NoConditionalWrites",
    "NoRights",
    "NotFound",
    "OpenHome",
    "Page",
    "Passing",
    "RetryingStore",
    "Store",
    "StoreChanged",
    "StoreError",
    "Throttled",
    "TooLarge",
    "Unreachable",
    "every_entry",
    "every_folder",
    "open_home",
]
