"""A small hub: the reading half of the Hugging Face hub's API, its storage on another host, and ways to misbehave.

A double: it answers from memory, on the loopback addresses 127.0.0.1 (hub) and 127.0.0.2 (storage).
"""

import hashlib
import json
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 2
"""Files on a page of a listing, so that a few files make several."""


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def git_hash(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@dataclass(frozen=True)
class Status:
    """Answers with a status instead of the content."""

    code: int
    error: str = ""
    headers: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """Serves another content, as if it were the right one."""

    body: bytes


@dataclass(frozen=True)
class Cut:
    """Closes the connection after some bytes of what was asked for."""

    after: int


@dataclass(frozen=True)
class Stall:
    """Sends some bytes of what was asked for, and no more until the hub is closed."""

    after: int


@dataclass(frozen=True)
class Whole:
    """Ignores the range."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    host: str
    path: str
    token: str
    range: str


class HubDouble:
    """Repositories by name; `asked` has every request."""

    def __init__(self):
        self.asked = []
        self.token = ""
        """Token without which nothing is shown."""
        self.gated = set()
        """Repositories that no token shows."""
        self.entries = {}
        """By path: fields of the listing that are replaced."""
        self.on_resolve = lambda: None
        self.url = self.storage = ""
        self._faults = defaultdict(list)
        self._always = {}
        self._revisions = {}
        self._commits = {}
        self._stored = {}
        self._closed = threading.Event()

    def push(self, repo, files, *, revision="main", large=(".safetensors", ".bin", ".gguf")):
        """Store files as a new commit of a branch; return the commit."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self._commits[repo, commit] = {
            name: (body, name.endswith(tuple(large))) for name, body in files.items()
        }
        self._revisions[repo, revision] = self._revisions[repo, commit] = commit
        return commit

    def fault(self, path, *faults, always=None):
        """Misbehave when a file is asked for: with each of the faults once, then always, or not any more."""
        self._faults[path] += faults
        if always is not None:
            self._always[path] = always

    def paths(self, host="hub"):
        return [each.path for each in self.asked if each.host == host]

    @contextmanager
    def serving(self, *, at=None, context=None):
        """Serve on free ports, or the hub at a socket that is bound; with a context the hub speaks TLS."""
        servers = [_server(self, "hub", "127.0.0.1", at), _server(self, "storage", "127.0.0.2", None)]
        if context is not None:
            servers[0].socket = context.wrap_socket(servers[0].socket, server_side=True)
        threads = [threading.Thread(target=each.serve_forever, args=(0.05,)) for each in servers]
        hub, storage = (f"{host}:{port}" for host, port in (each.server_address for each in servers))
        self.url, self.storage = f"http{'s' if context else ''}://{hub}", f"http://{storage}"
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._closed.set()
            for server, thread in zip(servers, threads, strict=True):
                server.shutdown()
                thread.join(60)
                server.server_close()

    # -- what a handler asks

    def answer(self, handler, host):
        parts = urlsplit(handler.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        token = handler.headers.get("Authorization", "")
        self.asked.append(Asked(host, path, token, handler.headers.get("Range", "")))
        words = path.strip("/").split("/")
        if host == "storage":
            self._send(handler, *self._stored[path])
            return
        repo = "/".join(words[2:4] if words[0] == "api" else words[:2])
        if self.token and token != f"Bearer {self.token}":
            handler.say(401, {"X-Error-Code": "GatedRepo" if repo in self.gated else "RepoNotFound"})
        elif repo in self.gated:
            handler.say(403, {"X-Error-Code": "GatedRepo"})
        elif words[0] == "api" and words[4] == "revision":
            self._resolve(handler, repo, "/".join(words[5:]))
        elif words[0] == "api":
            self._list(handler, repo, words[5], int(query.get("cursor", ["0"])[0]))
        else:
            self._file(handler, repo, words[3], "/".join(words[4:]))

    def _resolve(self, handler, repo, revision):
        commit = self._revisions.get((repo, revision))
        if commit is None:
            known = any(name == repo for name, _ in self._revisions)
            handler.say(404, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})
            return
        self.on_resolve()
        self._send(handler, "revision", json.dumps({"id": repo, "sha": commit}).encode(), ranged=False)

    def _list(self, handler, repo, commit, cursor):
        files = self._commits.get((repo, commit))
        if files is None:
            handler.say(404, {"X-Error-Code": "RevisionNotFound"})
            return
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "folder"}]
        for name, (body, large) in files.items():
            entry = {"type": "file", "oid": git_hash(body), "size": len(body), "path": name}
            if large:
                entry["oid"] = git_hash(b"pointer")
                entry["lfs"] = {"oid": sha256(body), "size": len(body), "pointerSize": 134}
            entries.append({**entry, **self.entries.get(name, {})})
        page = entries[cursor : cursor + PAGE]
        headers = {}
        if cursor + PAGE < len(entries):
            following = f"{self.url}/api/models/{repo}/tree/{commit}?recursive=true&cursor={cursor + PAGE}"
            headers["Link"] = f'<{following}>; rel="next"'
        handler.say(200, headers, json.dumps(page).encode())

    def _file(self, handler, repo, commit, name):
        files = self._commits.get((repo, commit)) or {}
        if name not in files:
            handler.say(404, {"X-Error-Code": "EntryNotFound" if files else "RevisionNotFound"})
            return
        body, large = files[name]
        if large:
            place = f"/{sha256(body)}"
            self._stored[place] = (name, body)
            handler.say(
                302, {"Location": f"{self.storage}{place}?signature=secret", "X-Linked-Etag": sha256(body)}
            )
        else:
            self._send(handler, name, body)

    def _send(self, handler, name, body, *, ranged=True):
        waiting = self._faults[name]
        fault = waiting.pop(0) if waiting else self._always.get(name)
        if isinstance(fault, Status):
            handler.say(fault.code, {"X-Error-Code": fault.error, **fault.headers})
            return
        if isinstance(fault, Content):
            body = fault.body
        whole, start = len(body), 0
        asked = handler.headers.get("Range", "")
        if ranged and asked and not isinstance(fault, Whole):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= whole:
                handler.say(416, {"Content-Range": f"bytes */{whole}"})
                return
        rest = body[start:]
        headers = {"Content-Range": f"bytes {start}-{whole - 1}/{whole}"} if start else {}
        if isinstance(fault, Cut | Stall):
            handler.say(206 if start else 200, headers, rest[: fault.after], length=len(rest))
            if isinstance(fault, Stall):
                self._closed.wait(60)
            handler.close_connection = True
            return
        handler.say(206 if start else 200, headers, rest)


def _server(double, host, address, at):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self):
            double.answer(self, host)

        def say(self, status, headers=None, body=b"", *, length=None):
            self.send_response(status)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer((address, 0), Handler, bind_and_activate=at is None)
    if at is not None:
        server.socket.close()
        server.socket = at
        server.server_address = at.getsockname()
    server.daemon_threads = False
    return server
