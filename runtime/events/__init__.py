"""Events about objects, as `kubectl describe` shows them (R8).

`correlator` decides purely whether an event is written, counted up or dropped; `recorder` queues and writes. Nothing
here may ever block or fail the caller: an event is a courtesy, the object's status is the record.
"""

from runtime.events.correlator import Bump, Correlator, Create, Drop, Verdict
from runtime.events.recorder import EventRecorder
from runtime.events.reference import ObjectReference, reference_to

__all__ = [
    "Bump",
    "Correlator",
    "Create",
    "Drop",
    "EventRecorder",
    "ObjectReference",
    "Verdict",
    "reference_to",
]
