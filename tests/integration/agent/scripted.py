"""A scripted operator for tests of the agent: HTTPS, holds replies, and says what a test tells it to say."""

import contextlib
import datetime as dt
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

REPOSITORY = Path(__file__).parents[3]
TRAIN = REPOSITORY / "examples" / "digits" / "train.py"
TOKEN = "token-of-a-pod"


def make_certificate(folder):
    """Write a self-signed certificate for 127.0.0.1 and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "scripted operator")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "tls.crt", folder / "tls.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate_path, key_path


class ScriptedOperator:
    """Answers beats as the leader would; `answer_with` replaces the answer to imitate failures."""

    def __init__(self, folder):
        certificate, key = make_certificate(folder)
        self.ca = certificate.read_text()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self.changed = threading.Condition()
        self.beats = {}
        self.posts = 0
        self.asked = 0
        self.epoch = 0
        self.stale = 0
        self.hb = 0.5
        self.answer_with = None
        self.close_agents = False
        self.decided = {}
        self._wanted = {}
        self._results = {}
        self._told = {}
        self._peers = weakref.WeakSet()
        self._peers_known = threading.Lock()
        self._server = None
        self._port = 0

    def start(self):
        """Listen; a second start listens on the same port again."""
        operator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self):
                """Answer as an API server that knows nobody."""
                with operator.changed:
                    operator.asked += 1
                    operator.changed.notify_all()
                self.send_response(403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, answer = operator.answer(body, self.headers.get("Authorization"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format, *args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def get_request(self):
                peer, address = super().get_request()
                peer.settimeout(30)
                secured = operator._context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
                with operator._peers_known:
                    operator._peers.add(secured)
                return secured, address

            def handle_error(self, request, client_address):
                pass

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    @property
    def port(self):
        return self._port

    @property
    def url(self):
        return f"https://127.0.0.1:{self._port}"

    def stop(self):
        """Stop listening and cut every connection, requests in flight included."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def cut(self):
        """Close every connection, whatever it does; one that comes meanwhile is there for the next cut."""
        with self._peers_known:
            peers = list(self._peers)
            self._peers.clear()
        for peer in peers:  # whoever is cut may be back before the last one is
            with contextlib.suppress(OSError):
                socket.socket.shutdown(peer, socket.SHUT_RDWR)

    def answer(self, body, authorization):
        beat = json.loads(body)
        with self.changed:
            self.posts += 1
            override = self.answer_with(beat, authorization) if self.answer_with is not None else None
            if override is not None:
                self.changed.notify_all()
                return override
            member = f"{beat['role']}-{beat['idx']}"
            known = self.beats.get(member)
            if known is not None and known["boot"] == beat["boot"] and known["seq"] >= beat["seq"]:
                self.stale += 1
                return 200, {}, json.dumps({"hb": self.hb, "directives": []}).encode()
            self.beats[member] = beat
            for result in beat["results"]:
                self._results[result["id"]] = result
            self.changed.notify_all()
            reply = self._reply(member, beat)
            if self._told.get(member) == reply and beat["hold"]:
                self.changed.wait_for(lambda: self._reply(member, self.beats[member]) != reply, beat["hold"])
                reply = self._reply(member, self.beats[member])
            self._told[member] = reply
            return 200, {}, json.dumps(reply).encode()

    def _reply(self, member, beat):
        return {
            "epoch": self.epoch,
            "hb": self.hb,
            "term": 1,
            "directives": [d for d in self._wanted.get(member, []) if d["id"] not in self._results],
            "decided": {
                ack["ckpt"]: self.decided[ack["ckpt"]] for ack in beat["acks"] if ack["ckpt"] in self.decided
            },
            "close": self.close_agents,
        }

    def want(self, member, directive, kind, **args):
        """Add a directive for a member and return its id."""
        with self.changed:
            self._wanted.setdefault(member, []).append({"id": directive, "kind": kind, "args": args})
            self.changed.notify_all()
        return directive

    def result(self, directive, timeout=60):
        """Wait for the result of a directive."""
        self.wait(lambda: directive in self._results, timeout, f"result of {directive}")
        return self._results[directive]

    def wait(self, predicate, timeout=60, what="what the test waits for"):
        with self.changed:
            assert self.changed.wait_for(predicate, timeout), (
                f"{what} did not come in {timeout} s: {self.beats}"
            )

    def beat(self, member):
        return self.beats.get(member, {})


class AgentProcess:
    """One agent in its own folder and on its own loopback address, as in a pod."""

    def __init__(
        self, installed, folder, operator, *, role, index, command, store, python=sys.executable, **more
    ):
        self.member = f"{role}-{index}"
        self.folder = folder / self.member
        self.folder.mkdir()
        for name in ("agent.pyz", "trainer_sdk.py"):
            os.link(installed / name, self.folder / name)
        self.token = self.folder / "token"
        self.token.write_text(TOKEN)
        self.address = f"127.77.{ {'worker': 1, 'ps': 2, 'master': 3}[role] }.{index + 1}"
        self.termination_log = self.folder / "termination-log"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TRAINER_NAME": "digits",
            "TRAINER_NAMESPACE": "default",
            "TRAINER_UID": "0f6c9c1e-0000",
            "TRAINER_ROLE": role,
            "TRAINER_INDEX": str(index),
            "TRAINER_ATTEMPT": "0",
            "TRAINER_EPOCHS": "20",
            "TRAINER_OPERATOR_URLS": operator.url,
            "TRAINER_OPERATOR_CA": operator.ca,
            "TRAINER_TOKEN_FILE": str(self.token),
            "TRAINER_STORE": str(store),
            "TRAINER_POD_NAME": f"digits-{self.member}-a0",
            "TRAINER_POD_UID": f"pod-{self.member}",
            "TRAINER_POD_IP": self.address,
            "TRAINER_NODE_NAME": "node-0",
            "TRAINER_AGENT_PORT": "29390",
            "TRAINER_GRACE_SECONDS": "10",
            "TRAINER_TERMINATION_LOG": str(self.termination_log),
            **more,
        }
        self.log_path = self.folder / "log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-I", str(self.folder / "agent.pyz"), "--", *command],
                env=environment,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self):
        return self.log_path.read_text()

    def end(self):
        """End the agent and its process, whatever they do."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def wait_until(predicate, timeout=60, what="what the test waits for"):
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"{what} did not come in {timeout} s"
        time.sleep(0.01)
