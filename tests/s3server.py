"""An S3 server of its own process for tests: moto in server mode, with a bucket."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCESS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3Server:
    """Runs until it is closed; every bucket name is free at the start."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        line = self._process.stdout.readline()
        assert line, f"the S3 server ended with {self._process.wait()}"
        self.url = f"http://127.0.0.1:{int(line)}"

    def make_bucket(self, name):
        self.call("PUT", f"/{name}")
        return name

    def keys(self, bucket):
        """Return the keys of a bucket, read around the store that is tested."""
        text = self.call("GET", f"/{bucket}?list-type=2")
        return [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]

    def call(self, method, path):
        request = urllib.request.Request(self.url + path, method=method)
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.read().decode()
            except urllib.error.HTTPError:
                raise
            except OSError:
                assert time.monotonic() < deadline, "the S3 server does not answer"
                time.sleep(0.1)

    def secret(self, folder: Path, **more):
        """Write the files of the Secret as they are mounted; return the folder."""
        folder.mkdir(exist_ok=True)
        for name, text in {**ACCESS, "AWS_ENDPOINT_URL": self.url, **more}.items():
            (folder / name).write_text(text)
        return str(folder)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
