"""The administrator's file: what is wrong is one sentence with the field."""

from pathlib import Path

import pytest
import yaml

from runtime.errors import ConfigurationInvalid
from trainer_operator.notify.configuration import read_configuration
from trainer_operator.notify.triggers import Severity, Trigger

GOOD = {
    "apiVersion": "trainer.operator.kubeflow.org/v1alpha1",
    "kind": "NotificationConfiguration",
    "privateHosts": ["alertmanager.monitoring.svc"],
    "services": [
        {"name": "team", "urlFile": "/etc/notify/team", "perSecond": 0.5},
        {"name": "alerts", "alertmanager": {"url": "http://alertmanager.monitoring.svc:9093"}},
    ],
    "templates": [{"trigger": "Failed", "title": "$trainer failed"}],
    "defaultRoutes": [{"service": "alerts", "severity": "Critical"}],
}


def read(tmp_path, **changes):
    path = tmp_path / "notifications.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}))
    return read_configuration(path)


def test_a_good_file_is_read(tmp_path):
    found = read(tmp_path)
    assert [service.name for service in found.services] == ["team", "alerts"]
    assert found.services[0].limits.per_second == 0.5
    assert found.defaults == {"alerts": Severity.Critical}
    assert found.words[Trigger.FAILED].title.template == "$trainer failed"


def alertmanager(url):
    return {"services": [{"name": "a", "alertmanager": {"url": url}}], "defaultRoutes": []}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "ConfigMap"}, "must have apiVersion trainer.operator.kubeflow.org/v1alpha1 and kind Notif"),
        ({"service": []}, "service: Extra inputs are not permitted"),
        ({"services": [{"name": "a", "urlFile": "/x", "url": "slack://a"}]}, "services.0.url: Extra"),
        ({"services": [{"name": "a"}]}, "services.0: give exactly one of urlFile and alertmanager"),
        ({"services": [{"name": "A b", "urlFile": "/x"}]}, "services.0.name: "),
        ({"services": [{"name": "alerts", "urlFile": "/x"}] * 2}, "service alerts is there twice"),
        ({"defaultRoutes": [{"service": "x"}]}, "names service x; services are: alerts, team"),
        ({"templates": [{"trigger": "Nope"}]}, "templates.0.trigger: "),
        ({"templates": [{"trigger": "Failed", "body": "$user"}]}, "templates.0: body names $user; there are"),
        (alertmanager("http://elsewhere"), "use https://, or list elsewhere in privateHosts"),
        (alertmanager("https://me:hunter2@a"), "must not hold a user"),
        (alertmanager("file:///etc/passwd"), "url must be https://"),
        (alertmanager("gopher://a"), "url must be https://"),
        (alertmanager("https://[a"), "url is no URL"),
    ],
)
def test_a_fault_is_told_with_its_field(tmp_path, changes, told):
    """KZ4, NE3."""
    with pytest.raises(ConfigurationInvalid, match=r"--notifications: ") as raised:
        read(tmp_path, **changes)
    assert told in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("content", ["[", "a: !!python/object:os.system x", "", "- 1"])
def test_what_is_no_such_file_is_told(tmp_path, content):
    """UC2: no tag of YAML makes an object."""
    path = tmp_path / "n.yaml"
    path.write_text(content)
    with pytest.raises(ConfigurationInvalid, match=r"n\.yaml"):
        read_configuration(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigurationInvalid, match="cannot be read: No such file"):
        read_configuration(tmp_path / "none")


def test_the_file_that_is_shipped_is_good():
    shipped = (
        Path(__file__).resolve().parents[4] / "deploy" / "components" / "notifications" / "notifications.yaml"
    )
    assert read_configuration(shipped).defaults == {"team-slack": Severity.Critical}
