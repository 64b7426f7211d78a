"""Where the API server is and who we are."""

import base64

import pytest
import yaml

from runtime.client import ClientConfig
from runtime.errors import ConfigurationInvalid

KUBECONFIG = {
    "current-context": "main",
    "contexts": [
        {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "plain", "context": {"cluster": "files", "user": "files"}},
        {"name": "nobody", "context": {"cluster": "c"}},
        {"name": "broken", "context": {"cluster": "missing", "user": "u"}},
        {"name": "old", "context": {"cluster": "c", "user": "old"}},
        {"name": "garbled", "context": {"cluster": "c", "user": "garbled"}},
    ],
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://api:6443/",
                "certificate-authority-data": base64.b64encode(b"CA").decode(),
            },
        },
        {
            "name": "files",
            "cluster": {
                "server": "https://api",
                "certificate-authority": "ca.crt",
                "tls-server-name": "inner",
            },
        },
    ],
    "users": [
        {"name": "u", "user": {"token": "secret"}},
        {
            "name": "files",
            "user": {"client-certificate": "tls.crt", "client-key": "/etc/tls.key", "tokenFile": "token"},
        },
        {"name": "old", "user": {"auth-provider": {"name": "gcp"}}},
        {"name": "garbled", "user": {"client-key-data": "!!!"}},
    ],
}


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(KUBECONFIG))
    return path


def test_the_current_context_is_used(kubeconfig):
    """K1."""
    config = ClientConfig.from_kubeconfig(kubeconfig)
    assert (config.server, config.ca_data, config.token, config.namespace) == (
        "https://api:6443",
        b"CA",
        "secret",
        "team",
    )


def test_files_are_found_beside_the_kubeconfig(kubeconfig, tmp_path):
    """K1."""
    config = ClientConfig.from_kubeconfig(kubeconfig, context="plain")
    assert config.ca_file == str(tmp_path / "ca.crt")
    assert config.client_certificate_file == str(tmp_path / "tls.crt")
    assert config.client_key_file == "/etc/tls.key"
    assert config.token_file == str(tmp_path / "token")
    assert config.tls_server_name == "inner"
    assert config.namespace == "default"


def test_a_context_without_a_user_is_anonymous(kubeconfig):
    """K1."""
    assert ClientConfig.from_kubeconfig(kubeconfig, context="nobody").token is None


@pytest.mark.parametrize(
    ("context", "complaint"),
    [
        ("absent", "no context named 'absent'"),
        ("broken", "no cluster named 'missing'"),
        ("old", "auth-provider"),
        ("garbled", "client-key-data is not base64"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_with_the_file(kubeconfig, context, complaint):
    """K1."""
    with pytest.raises(ConfigurationInvalid, match=complaint) as failure:
        ClientConfig.from_kubeconfig(kubeconfig, context=context)
    assert str(kubeconfig) in str(failure.value)


@pytest.mark.parametrize("text", ["", "[]", "{a: ", "current-context: ''", "\0"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path, text):
    """K1."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationInvalid, match="kubeconfig"):
        ClientConfig.from_kubeconfig(path)


def test_the_environment_names_the_kubeconfig(kubeconfig, tmp_path, monkeypatch):
    """K1."""
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{kubeconfig}")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert ClientConfig.auto().token == "secret"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(ConfigurationInvalid, match="no kubeconfig found"):
        ClientConfig.from_kubeconfig()


def test_a_pod_uses_its_service_account_and_brackets_ipv6(tmp_path, monkeypatch):
    """K1."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("team\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    config = ClientConfig.in_cluster(tmp_path)
    assert (config.server, config.namespace) == ("https://[fd00::1]:6443", "team")
    assert config.token_file == str(tmp_path / "token")
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigurationInvalid, match="no service account token"):
        ClientConfig.in_cluster(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ConfigurationInvalid, match="no pod in a cluster"):
        ClientConfig.in_cluster(tmp_path)


def test_secrets_do_not_show_in_the_representation():
    """Style §9."""
    config = ClientConfig("https://api", token="hush", client_key_data=b"hush")
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    "wrong",
    [
        {"server": "api:6443"},
        {"server": "https://api", "qps": 0.0},
        {"server": "https://api", "qps": float("nan")},
    ],
)
def test_nonsense_is_refused_at_once(wrong):
    """K3, K8."""
    with pytest.raises(ConfigurationInvalid):
        ClientConfig(**wrong)
