"""Probes: liveness is the agent alone, readiness is the training process (AG9). kubelet never judges steps."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Tuple

_READY_PHASES = ("train", "checkpoint", "eval", "waiting_ps", "paused", "done")


def is_ready(*, running: bool, phase: str) -> bool:
    """Whether the member takes part in training: its process runs and is past its start."""
    return running and phase in _READY_PHASES


class ProbeServer:
    """Answers `/livez` and `/readyz` on the pod's address, and nowhere else.

    Raises: OSError on construction when the port is taken.
    """

    def __init__(self, address: Tuple[str, int], *, ready: Callable[[], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                if self.path == "/livez":
                    status, text = 200, b"ok\n"
                elif self.path == "/readyz":
                    status, text = (200, b"ok\n") if ready() else (503, b"the process does not train yet\n")
                else:
                    status, text = 404, b"only /livez and /readyz are here\n"
                self.send_response(status)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep probes out of the user's log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Keep a prober that hangs up out of the user's log."""

        self._server = Server(address, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
