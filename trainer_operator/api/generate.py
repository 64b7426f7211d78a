"""Write `crds/` from the models: `python -m trainer_operator.api.generate [--check] [--directory crds]`.

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

HEADER = "# Generated from trainer_operator/api by `make generate`; change the models, not this file.\n"
KUSTOMIZATION = "kustomization.yaml"


def render() -> dict[str, str]:
    """Return the content of each generated file by its name."""
    files = {kind.file_name: _yaml(custom_resource_definition(kind)) for kind in KINDS}
    files[KUSTOMIZATION] = _yaml(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": sorted(kind.file_name for kind in KINDS),
        }
    )
    return files


def drift(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return the lines of a diff from the directory to the files; none when they agree."""
    lines: list[str] = []
    stale = {path.name for path in directory.glob(f"{GROUP}_*.yaml")} - files.keys()
    for name in sorted(files.keys() | stale):
        path = directory / name
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


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files, and remove those of kinds that are no more."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob(f"{GROUP}_*.yaml"):
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (directory / name).write_text(content, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer_operator.api.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when they differ")
    parser.add_argument(
        "--directory", type=Path, default=Path("crds"), help="where the files are (default: crds)"
    )
    options = parser.parse_args(arguments)
    files = render()
    if not options.check:
        write(options.directory, files)
        return 0
    lines = drift(options.directory, files)
    if lines:
        print("\n".join(lines))
        print(f"{options.directory} differs from the models; run `make generate`", file=sys.stderr)
        return 1
    return 0


class _PlainDumper(yaml.SafeDumper):
    """Write every value in full: anchors would make the files hard to read and to patch."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (the base class calls it)
        """Never use an alias."""
        return True


def _yaml(document: dict[str, Any]) -> str:
    # One line per text: wrapped ones repeat the deep indentation, a fifth of the file (CR2).
    text: str = yaml.dump(
        document, Dumper=_PlainDumper, default_flow_style=None, width=100_000, allow_unicode=True
    )
    return HEADER + text


if __name__ == "__main__":
    sys.exit(main())
