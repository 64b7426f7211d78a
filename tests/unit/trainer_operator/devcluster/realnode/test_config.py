"""What containerd, CNI and kubelet are configured with."""

import json
import tomllib
from pathlib import Path

from trainer_operator.devcluster.realnode import config
from trainer_operator.devcluster.realnode.config import Places

PLACES = Places(Path("/room"), Path("/usr/sbin/runc"), Path("/ca.crt"), Path("/k.crt"), Path("/k.key"))


def test_containerd_runs_debians_runc_with_the_sandbox_image_that_is_imported():
    settings = tomllib.loads(config.containerd(PLACES))
    runtime = settings["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"
    pinned = settings["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]
    assert pinned["sandbox"] == config.SANDBOX_IMAGE


def test_pods_get_addresses_of_the_bridge_and_no_way_out():
    bridge, loopback = json.loads(config.network(PLACES))["plugins"]
    assert (bridge["bridge"], bridge["ipMasq"]) == (config.BRIDGE, False)
    assert bridge["ipam"]["ranges"] == [[{"subnet": config.SUBNET, "gateway": config.NODE_ADDRESS}]]
    assert loopback == {"type": "loopback"}


def test_kubelet_keeps_all_control_groups_in_one_folder_and_lets_nobody_in_unnamed():
    settings = json.loads(config.kubelet(PLACES))
    assert settings["cgroupRoot"] == f"/{config.CGROUP}"
    assert settings["cgroupsPerQOS"] is False
    assert settings["authentication"]["anonymous"] == {"enabled": False}
    assert settings["authorization"] == {"mode": "Webhook"}
