"""Leader election with a Lease (L1-L10): which of several replicas may write.

`deadline` ends a process that stands still past its lease, `step` decides and is pure, `driver` carries its actions out, `elector` gives the driver a thread of its own so that
a stalled main loop cannot lose the lease, and `record` reads and writes the Lease. Any change of `step` must keep
the property test with two electors, skewed clocks and partitions green: never two unfenced writers.
"""

from runtime.leaderelection.driver import ElectionDriver, LeaseStore
from runtime.leaderelection.elector import ApiLeaseStore, LeaderElectionConfig, LeaderElector, new_identity
from runtime.leaderelection.record import Lease
from runtime.leaderelection.step import Terms, step

__all__ = [
    "ApiLeaseStore",
    "ElectionDriver",
    "LeaderElectionConfig",
    "LeaderElector",
    "Lease",
    "LeaseStore",
    "Terms",
    "new_identity",
    "step",
]
