"""Arguments of the control plane's programs."""

from pathlib import Path

import pytest

from trainer_operator.devcluster import component
from trainer_operator.devcluster.certificates import KeyPair
from trainer_operator.devcluster.component import START_ORDER, Files, Ports

PORTS = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5)
PAIR = KeyPair(Path("/s/x.crt"), Path("/s/x.key"))


def files(**extra):
    return Files(
        state=Path("/s"),
        authority=PAIR,
        service_account_key=Path("/s/sa.key"),
        apiserver=PAIR,
        kubelet_client=PAIR,
        audit_log=Path("/s/audit.log"),
        audit_policy=Path("/s/audit.yaml"),
        controller_manager_kubeconfig=Path("/s/kcm"),
        scheduler_kubeconfig=Path("/s/scheduler"),
        extra=extra,
    )


@pytest.mark.parametrize("name", START_ORDER)
def test_every_component_listens_on_loopback_only(name):
    arguments = component.arguments(name, ports=PORTS, files=files())
    values = [argument.partition("=")[2] for argument in arguments]
    assert "0.0.0.0" not in values
    assert any(value.startswith(("127.0.0.1", "http://127.0.0.1")) for value in values)
    assert any(value.endswith(str(component.port_of(name, PORTS))) for value in values)


def test_server_has_the_admission_and_authorization_of_a_strict_cluster():
    arguments = component.arguments("apiserver", ports=PORTS, files=files())
    assert "--authorization-mode=Node,RBAC" in arguments
    assert "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement" in arguments
    assert "--audit-log-path=/s/audit.log" in arguments


def test_extra_arguments_come_last_so_that_they_win():
    arguments = component.arguments(
        "apiserver", ports=PORTS, files=files(apiserver=("--authorization-mode=RBAC",))
    )
    assert arguments[-1] == "--authorization-mode=RBAC"
