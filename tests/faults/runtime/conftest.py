"""A fault proxy before the real API server, for the tests that are named after it."""

import pytest

from runtime.client import Client
from runtime.testing.faultproxy import FaultProxy


@pytest.fixture
async def proxy(control_plane):
    """A proxy whose bookmarks come often enough to test what depends on them."""
    async with FaultProxy(control_plane.config, bookmark_period=0.2) as proxy:
        yield proxy


@pytest.fixture
async def direct(control_plane):
    """A client that goes past the proxy: it is what the rest of the cluster does."""
    async with Client(control_plane.config) as client:
        yield client
