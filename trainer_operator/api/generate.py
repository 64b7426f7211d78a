"""Write `crds/` and the roles for people from the models: `python -m trainer_operator.api.generate [--check]`.

With `--check` nothing is written; the exit code is 1, with a diff, when files and models differ (CR12).
"""

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainer_operator.api.crd import KINDS, custom_resource_definition
from trainer_operator.api.meta import GROUP
from trainer_operator.api.roles import user_roles

HEADER = "# Generated from trainer_operator/api by `make generate`; change the models, not this file.\n"
CRDS = "crds"
ROLES_FILE = "deploy/base/user-roles.yaml"


def render() -> dict[str, str]:
    """Return the content of each generated file by its path from the root of the repository."""
    files = {f"{CRDS}/{kind.file_name}": _yaml(custom_resource_definition(kind)) for kind in KINDS}
    files[f"{CRDS}/kustomization.yaml"] = _yaml(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "labels": [{"pairs": {"app.kubernetes.io/component": "crds"}}],
            "resources": sorted(kind.file_name for kind in KINDS),
        }
    )
    files[ROLES_FILE] = _yaml(*user_roles())
    return files


def drift(root: Path, files: Mapping[str, str]) -> list[str]:
    """Return the lines of a diff from the repository to the files; none when they agree."""
    lines: list[str] = []
    for name in sorted(files.keys() | _stale(root, files)):
        path = root / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = files.get(name, "")
        lines += difflib.unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"{name} (on disk)",
            f"{name} (from the models)",
            lineterm="",
        )
    return lines


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write the files, and remove the CRDs of kinds that are no more."""
    for name in _stale(root, files):
        (root / name).unlink()
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _stale(root: Path, files: Mapping[str, str]) -> set[str]:
    found = {path.relative_to(root).as_posix() for path in (root / CRDS).glob(f"{GROUP}_*.yaml")}
    return found - files.keys()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer_operator.api.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when they differ")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository (default: here)")
    options = parser.parse_args(arguments)
    files = render()
    if not options.check:
        write(options.root, files)
        return 0
    lines = drift(options.root, files)
    if lines:
        print("\n".join(lines))
        print("generated files differ from the models; run `make generate`", file=sys.stderr)
        return 1
    return 0


class _PlainDumper(yaml.SafeDumper):
    """Write every value in full: anchors would make the files hard to read and to patch."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (the base class calls it)
        """Never use an alias."""
        return True


def _yaml(*documents: dict[str, Any]) -> str:
    # Leaves in one line each: deep indentation was half of the file (CR2).
    text: str = yaml.dump_all(
        documents, Dumper=_PlainDumper, default_flow_style=None, width=100_000, allow_unicode=True
    )
    return HEADER + text


if __name__ == "__main__":
    sys.exit(main())
