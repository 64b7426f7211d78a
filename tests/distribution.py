"""Which worker runs which tests, and in which order: what takes longest begins first, small files fill what is left.

The tests of one file stay together. Those on a cluster with operators all stay together: every such cluster takes a
fair part of a processor for as long as it is there.
"""

import pytest
from xdist.scheduler import LoadFileScheduling

CLUSTER = "tests/integration/trainer/"
FIRST = (CLUSTER, "tests/property/", "tests/integration/", "tests/faults/")


def rank(item):
    return next((i for i, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), len(FIRST))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Keep the chance order among equals."""
    items.sort(key=rank)


class LongestFirst(LoadFileScheduling):
    """Hands out files in the order of the collection, and one folder as a whole."""

    def _split_scope(self, nodeid):
        return CLUSTER if nodeid.startswith(CLUSTER) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # files with many tests are the quick ones here
    return LongestFirst(config, log)
