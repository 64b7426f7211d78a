"""Kubeconfig files."""

import base64
import stat

import yaml

from trainer_operator.devcluster import kubeconfig
from trainer_operator.devcluster.certificates import KeyPair


def test_kubeconfig_holds_all_that_a_client_needs(tmp_path):
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(f"the {name}")
    path = kubeconfig.write(
        tmp_path / "deep" / "kubeconfig",
        url="https://127.0.0.1:20000",
        user="admin",
        authority=tmp_path / "ca",
        pair=KeyPair(tmp_path / "crt", tmp_path / "key"),
        cluster="dev",
    )
    document = yaml.safe_load(path.read_text())
    user = document["users"][0]["user"]
    assert document["current-context"] == document["contexts"][0]["name"] == "admin@dev"
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:20000"
    assert base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]) == b"the ca"
    assert base64.b64decode(user["client-certificate-data"]) == b"the crt"
    assert base64.b64decode(user["client-key-data"]) == b"the key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
