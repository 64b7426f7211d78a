"""Among many pods, an operator is timed until it serves a new job, which its own webhook may refuse at first."""

import pytest
from aiohttp import web

from benchmarks.stock.arm import Broken
from benchmarks.stock.scenario import Room
from benchmarks.stock.scenarios import scale
from benchmarks.stock.scenarios.scale import Scale, lag
from benchroom import StandIn

PAGE = """\
# HELP runtime_event_loop_lag_seconds How late the event loop ran at the last look.
# TYPE runtime_event_loop_lag_seconds gauge
runtime_event_loop_lag_seconds 0.25
runtime_event_loop_lag_seconds_created 1.7e+09
"""


def test_lag_is_read_off_a_page_of_metrics_and_not_made_up():
    assert lag(PAGE) == 0.25
    assert lag("go_goroutines 7\n") is None


class Restarted(StandIn):
    """It refuses jobs while it is stopped, and for one more try; and it tells its lag."""

    def __init__(self, folder, url):
        super().__init__(folder, replaces=True)
        self.url = url
        self.refusals = 0
        self.is_started = True
        self.deleted = []

    async def request(self, verb, path, body=None, *, content_type=""):
        if path.endswith("/leases"):
            namespaces = ("kube-system", "bench")
            return {"items": [{"metadata": {"namespace": each, "name": "it"}} for each in namespaces]}
        if verb == "DELETE":
            self.deleted.append(path)
            return {}
        if path == self.job_resource and "late" in body["name"] and (self.refusals or not self.is_started):
            self.refusals = max(0, self.refusals - 1)
            raise Broken("the webhook does not answer")
        return await super().request(verb, path, body)

    def create(self, job, number):
        super().create(job, number)
        self.log("patch", "kwok", f"{job}-{number}")

    async def stop(self):
        self.is_started = False

    async def start(self, _cluster):
        self.is_started, self.refusals = True, 1

    def pids(self):
        return []

    def metrics_url(self):
        return self.url


@pytest.fixture
async def metrics_url():
    async def page(_request):
        return web.Response(text=PAGE)

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    await runner.cleanup()


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr("benchmarks.stock.story._QUIET", 0.6)
    monkeypatch.setattr(scale, "_LOOK", 0.01)


async def test_an_operator_is_started_again_three_times_and_serves_a_new_job(tmp_path, metrics_url):
    room = Restarted(tmp_path, metrics_url)
    outcome = await Scale(20).run(Room(room, room))
    assert outcome.figures["lag"] == 0.25
    assert outcome.figures["requests"] >= 1
    assert {"ready", "works", "cpu", "peak_memory", "memory"} <= outcome.figures.keys()
    assert outcome.notes == {}
    assert room.deleted == ["apis/coordination.k8s.io/v1/namespaces/bench/leases/it"] * 3
    late = [job for job in (pod["metadata"]["labels"]["job"] for pod in room.pods.values()) if "late" in job]
    assert sorted(late) == ["scale-20-late-0", "scale-20-late-1", "scale-20-late-2"]


async def test_pods_that_run_already_are_not_made_again(tmp_path):
    room = Restarted(tmp_path, "")
    await Scale(20).run(Room(room, room))
    await Scale(60, before=20).run(Room(room, room))
    jobs = [pod["metadata"]["labels"]["job"] for pod in room.pods.values()]
    assert sum("late" not in job for job in jobs) == 60


async def test_an_operator_without_an_event_loop_tells_no_lag(tmp_path):
    room = Restarted(tmp_path, "")
    outcome = await Scale(20).run(Room(room, room))
    assert "lag" not in outcome.figures
    assert outcome.notes == {"lag": "not told"}
