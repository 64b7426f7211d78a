"""What a peer publishes is changed only in what running outside the cluster demands."""

import pytest
import yaml

from benchmarks.stock.arm import Broken
from benchmarks.stock.published import config_file, outside_cluster, render


def service(name, namespace="peer"):
    return {
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "peer"}},
        "spec": {"selector": {"app": "peer"}, "ports": [{"port": 443}]},
    }


def webhooks(name):
    front = {"name": "front", "namespace": "peer", "path": "/validate"}
    return {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{"name": "v.example", "failurePolicy": "Fail", "clientConfig": {"service": front}}],
    }


def test_webhook_is_called_on_this_machine_by_its_own_name():
    front, hooks = outside_cluster([service("front"), webhooks("hooks")], webhook_port=4711)
    assert front["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    assert front["metadata"] == service("front")["metadata"]
    assert hooks["webhooks"][0]["clientConfig"]["service"] == {
        "name": "front",
        "namespace": "peer",
        "path": "/validate",
        "port": 4711,
    }
    assert hooks["webhooks"][0]["failurePolicy"] == "Fail"


def test_other_services_stay_as_they_are():
    metrics, elsewhere = service("metrics"), service("front", namespace="other")
    assert outside_cluster([metrics, elsewhere, webhooks("hooks")], webhook_port=1)[:2] == [
        metrics,
        elsewhere,
    ]


def test_deployment_is_left_out_because_the_program_runs_outside():
    assert outside_cluster([{"kind": "Deployment", "metadata": {"name": "peer"}}], webhook_port=1) == []


def test_configuration_is_the_one_in_the_published_config_map():
    published = [service("front"), {"kind": "ConfigMap", "data": {"config.yaml": "webhook: {port: 9443}"}}]
    assert config_file(published, "config.yaml") == {"webhook": {"port": 9443}}


def test_missing_configuration_breaks_the_arm_in_a_sentence():
    with pytest.raises(Broken, match=r"^there is no config.yaml among what is published$"):
        config_file([{"kind": "ConfigMap"}], "config.yaml")


@pytest.fixture
def source(tmp_path):
    overlay = tmp_path / "source" / "overlay"
    overlay.mkdir(parents=True)
    (overlay / "kustomization.yaml").write_text("namespace: peer\nresources: [own.yaml, ../third-party]\n")
    return tmp_path / "source"


def test_what_is_installed_apart_is_left_out_of_a_copy(source, tmp_path):
    def kustomize(_, folder):
        with open(f"{folder}/kustomization.yaml") as stream:
            assert yaml.safe_load(stream) == {"namespace": "peer", "resources": ["own.yaml"]}
        return "kind: A\n---\n---\nkind: B\n"

    rendered = render(kustomize, source, "overlay", scratch=tmp_path / "copy", without=["../third-party"])
    assert rendered == [{"kind": "A"}, {"kind": "B"}]
    assert "third-party" in (source / "overlay" / "kustomization.yaml").read_text()


def test_overlay_that_does_not_list_what_is_left_out_breaks_the_arm(source, tmp_path):
    with pytest.raises(Broken, match=r"^overlay does not list ../jobset$"):
        render(lambda *_: "", source, "overlay", scratch=tmp_path / "copy", without=["../jobset"])
