"""What is built, and how Go's words become one sentence."""

from pathlib import Path

import pytest

from trainer_operator.devcluster import gotoolchain
from trainer_operator.devcluster.assets import KUBERNETES_VERSION, PROGRAMS
from trainer_operator.devcluster.build import explain, go_environment, targets

ETCD = targets(["etcd"])[0]


def test_every_program_has_a_target_in_a_pinned_module():
    assert [target.program for target in targets()] == list(PROGRAMS)
    assert {target.module for target in targets()} == {"etcd", "controlplane"}


def test_kubernetes_version_is_stamped_where_clients_look_for_it():
    flags = targets(["kube-apiserver"])[0].linker_flags
    assert f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}" in flags
    assert "-X k8s.io/component-base/version.gitMajor=1" in flags
    assert f"-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}" in flags


def test_go_environment_takes_no_flags_from_the_user():
    environ = {"PATH": "/bin", "GOFLAGS": "-mod=mod", "GOOS": "plan9", "GOPROXY": "https://proxy.example"}
    result = go_environment(environ, work=Path("/build-folder"), private=False)
    assert result["GOFLAGS"] == "-mod=readonly -modcacherw"
    assert "GOOS" not in result
    assert "GOMODCACHE" not in result
    assert result["GOPROXY"] == "https://proxy.example"
    assert result["GOCACHE"] == "/build-folder/gocache"


def test_private_go_gets_a_module_cache_that_is_deleted_with_the_build():
    assert go_environment({}, work=Path("/w"), private=True)["GOMODCACHE"] == "/w/modcache"


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            ["go: example.com/m@v1: Get https://proxy: dial tcp: lookup proxy: no such host"],
            "connect to the network",
        ),
        (["# pkg", "write /tmp/x: no space left on device"], "the disk is full"),
        (["# pkg", "pkg/file.go:3:1: undefined: thing"], "undefined: thing"),
        (["go: downloading example.com/m v1.0.0"], "Go gave no reason"),
    ],
)
def test_failed_build_is_explained_in_one_sentence(output, sentence):
    text = explain(ETCD, output)
    assert sentence in text
    assert text.startswith("etcd could not be built")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/arm64", (1, 27, 0)),
        ("go version devel go1.28-a1b2c3 linux/amd64", (1, 28, 0)),
        ("command not found", None),
    ],
)
def test_go_version_is_read_from_what_go_prints(text, version):
    assert gotoolchain.parse_version(text) == version


def test_needed_go_version_is_the_go_line_of_the_module():
    assert gotoolchain.needed_version("module m\n\ngo 1.26.0\n\nrequire a v1.2.3\n") == (1, 26, 0)
    assert gotoolchain.needed_version("module m\n\ngo 1.26\n") == (1, 26, 0)
    assert gotoolchain.needed_version("module m\n") == (0, 0, 0)
