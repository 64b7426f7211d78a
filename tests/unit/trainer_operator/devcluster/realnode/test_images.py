"""OCI archives: every blob is what its name says, and the images of one archive share the base."""

import hashlib
import json
import tarfile

import pytest

from trainer_operator.devcluster.realnode.images import (
    SANDBOX,
    USER,
    Image,
    Layer,
    folder_files,
    write_archive,
)


@pytest.fixture
def base(tmp_path):
    file = tmp_path / "base.tar"
    with tarfile.open(file, "w"):
        pass
    content = file.read_bytes()
    return Layer(hashlib.sha256(content).hexdigest(), len(content), file=file)


@pytest.fixture
def archive(tmp_path, base):
    program = tmp_path / "train.py"
    program.write_text("print('trained')\n")
    write_archive(tmp_path / "all.tar", base, [SANDBOX, Image("localhost/a:1", {"code/train.py": program})])
    with tarfile.open(tmp_path / "all.tar") as opened:
        return {name: opened.extractfile(name).read() for name in opened.getnames()}


def blob(archive, descriptor):
    content = archive["blobs/" + descriptor["digest"].replace(":", "/")]
    assert len(content) == descriptor["size"]
    return content


def images(archive):
    for entry in json.loads(archive["index.json"])["manifests"]:
        manifest = json.loads(blob(archive, entry))
        yield entry["annotations"]["io.containerd.image.name"], manifest


def test_every_blob_has_the_hash_that_is_its_name(archive):
    blobs = {name: content for name, content in archive.items() if name.startswith("blobs/")}
    assert {
        name: f"blobs/sha256/{hashlib.sha256(content).hexdigest()}" for name, content in blobs.items()
    } == {name: name for name in blobs}


def test_images_share_the_base_and_name_a_user_by_number(archive, base):
    found = dict(images(archive))
    assert set(found) == {SANDBOX.name, "localhost/a:1"}
    for manifest in found.values():
        settings = json.loads(blob(archive, manifest["config"]))
        assert settings["config"]["User"] == USER == "1000:1000"
        assert settings["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
        assert manifest["layers"][0]["digest"] == f"sha256:{base.digest}"


def test_files_lie_in_their_folders_where_everybody_can_read_them(archive, tmp_path):
    manifest = dict(images(archive))["localhost/a:1"]
    (tmp_path / "top.tar").write_bytes(blob(archive, manifest["layers"][1]))
    with tarfile.open(tmp_path / "top.tar") as layer:
        entries = {entry.name: (entry.isdir(), entry.mode) for entry in layer}
    assert entries == {"code": (True, 0o755), "code/train.py": (False, 0o644)}


def test_same_files_make_the_same_archive(archive, base, tmp_path):
    program = tmp_path / "train.py"
    write_archive(tmp_path / "again.tar", base, [SANDBOX, Image("localhost/a:1", {"code/train.py": program})])
    with tarfile.open(tmp_path / "again.tar") as opened:
        assert set(opened.getnames()) == set(archive)


def test_only_files_of_the_suffix_go_into_an_image(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("a.py", "inner/b.py", "inner/b.pyc"):
        (tmp_path / name).touch()
    assert set(folder_files(tmp_path, "opt")) == {"opt/a.py", "opt/inner/b.py"}
