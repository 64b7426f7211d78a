"""Where the control plane's programs are looked for."""

import re
from pathlib import Path

import pytest

from trainer_operator.devcluster import assets
from trainer_operator.devcluster.errors import AssetsMissing

ROOT = Path(__file__).resolve().parents[4]


def programs(folder, *names, text="#!/bin/sh\necho Kubernetes v1.36.3\n"):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def test_named_folder_comes_before_the_cache(tmp_path):
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "named"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    named = programs(tmp_path / "named", *assets.PROGRAMS)
    programs(assets.cache_folder(environ), *assets.PROGRAMS)
    assert assets.find(environ=environ) == assets.Assets(named)


def test_named_folder_without_a_program_is_refused_and_not_passed_over(tmp_path):
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "named"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    programs(tmp_path / "named", "etcd", "kube-apiserver")
    programs(assets.cache_folder(environ), *assets.PROGRAMS)
    with pytest.raises(
        AssetsMissing, match=r"has no kube-controller-manager, no kube-scheduler, no kubectl: add"
    ):
        assets.find(environ=environ)


@pytest.mark.parametrize("said", ["Kubernetes v1.31.9", "Kubernetes v2.0.0", "", "something else"])
def test_too_old_or_unknown_server_is_refused_with_its_version(tmp_path, said):
    folder = programs(tmp_path, *assets.PROGRAMS, text=f"#!/bin/sh\necho '{said}'\n")
    with pytest.raises(AssetsMissing, match=re.escape(said or "of unknown version")):
        assets.find(environ={"KUBEBUILDER_ASSETS": str(folder)})


def test_program_of_another_architecture_is_refused_in_a_sentence(tmp_path):
    folder = programs(tmp_path, *assets.PROGRAMS, text="\x7fELF and then nothing that runs")
    with pytest.raises(AssetsMissing, match="does not run on this machine"):
        assets.find(environ={"KUBEBUILDER_ASSETS": str(folder)})


def test_programs_are_not_run_to_find_them_in_the_cache(tmp_path):
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    programs(assets.cache_folder(environ), *assets.PROGRAMS, text="not a program")
    found = assets.find(environ=environ)
    assert found is not None
    assert found.path("etcd") == assets.cache_folder(environ) / "etcd"


def test_missing_programs_are_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(AssetsMissing, match="run `make assets`"):
        assets.require(environ={"XDG_CACHE_HOME": str(tmp_path)})


def test_file_that_cannot_be_executed_counts_as_missing(tmp_path):
    folder = programs(tmp_path, "etcd", "kubectl")
    (folder / "kubectl").chmod(0o644)
    (folder / "kube-apiserver").mkdir()
    assert assets.missing_in(folder, ("etcd", "kubectl", "kube-apiserver")) == ["kubectl", "kube-apiserver"]


def test_version_is_that_of_the_pinned_go_module():
    text = (ROOT / "tools" / "controlplane" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {assets.KUBERNETES_VERSION}" in text
