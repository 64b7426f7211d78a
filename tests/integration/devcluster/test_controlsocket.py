"""The control socket between the command line and the supervisor."""

import asyncio
import socket

import pytest

from trainer_operator.devcluster import controlsocket
from trainer_operator.devcluster.errors import ClusterFault, ClusterNotRunning


async def answer(request):
    if request.get("do") == "fail":
        raise ClusterFault("no such node")
    return {"got": request}


async def call(folder, request):
    return await asyncio.to_thread(controlsocket.call, folder, request, timeout=5.0)


async def test_request_is_answered_even_where_the_folder_s_path_is_longer_than_a_socket_s_may_be(tmp_path):
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    async with controlsocket.serving(folder, answer):
        assert await call(folder, {"do": "status"}) == {"got": {"do": "status"}}


async def test_fault_of_the_supervisor_is_raised_in_its_own_words(tmp_path):
    async with controlsocket.serving(tmp_path, answer):
        with pytest.raises(ClusterFault, match=r"^no such node$"):
            await call(tmp_path, {"do": "fail"})


@pytest.mark.parametrize("line", [b"\n", b"not json\n", b"[]\n", b"\xff\xfe\n", b"{}", b""])
async def test_malformed_request_harms_nothing(tmp_path, line):
    async with controlsocket.serving(tmp_path, answer):
        await asyncio.to_thread(send, tmp_path, line)
        assert await call(tmp_path, {"do": "status"}) == {"got": {"do": "status"}}


def send(folder, line):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(folder / controlsocket.SOCKET))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


async def test_socket_left_over_by_a_killed_supervisor_is_replaced(tmp_path):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / controlsocket.SOCKET))
    left.close()
    with pytest.raises(ClusterNotRunning, match="is not up: run `trainer-operator dev up`"):
        await call(tmp_path, {"do": "status"})
    async with controlsocket.serving(tmp_path, answer):
        assert await call(tmp_path, {}) == {"got": {}}
    assert not (tmp_path / controlsocket.SOCKET).exists()


async def test_cluster_without_a_folder_is_not_up(tmp_path):
    with pytest.raises(ClusterNotRunning):
        await call(tmp_path / "never", {"do": "status"})


async def test_silent_supervisor_is_given_up(tmp_path):
    async def silent(_):
        await asyncio.Event().wait()

    async with controlsocket.serving(tmp_path, silent):
        with pytest.raises(ClusterFault, match="gave no answer within 0 s"):
            await asyncio.to_thread(controlsocket.call, tmp_path, {}, timeout=0.1)
