"""Install the agent: `agent.pyz` and the SDK into the folder that the init container shares with the pod (AG1)."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipapp

ZIPAPP = "agent.pyz"
SDK = "trainer_sdk.py"
_MAIN = "__main__.py"
_PACKAGE = '"""The part of the operator that runs inside training pods."""\n'


def install(directory: str) -> str:
    """Write the zipapp and the SDK, and return the zipapp's path.

    Guarantees: each file is whole or absent; repeating it is harmless.
    Raises: OSError.
    """
    sources = os.path.dirname(os.path.abspath(__file__))
    os.makedirs(directory, exist_ok=True)
    target = os.path.join(directory, ZIPAPP)
    with tempfile.TemporaryDirectory(prefix=".install-", dir=directory) as staging:
        tree = os.path.join(staging, "tree")
        package = os.path.join(tree, "trainer_operator")
        shutil.copytree(
            sources, os.path.join(package, "agent"), ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
        shutil.copyfile(os.path.join(sources, _MAIN), os.path.join(tree, _MAIN))
        _write(os.path.join(package, "__init__.py"), _PACKAGE)
        _touch(tree)
        built = os.path.join(staging, ZIPAPP)
        zipapp.create_archive(tree, built)
        sdk = os.path.join(staging, SDK)
        shutil.copyfile(os.path.join(sources, "sdk", SDK), sdk)
        for path in (built, sdk):
            os.chmod(path, 0o444)  # the training process may run as another user
            os.replace(path, os.path.join(directory, os.path.basename(path)))
    return target


def _touch(tree: str) -> None:
    """Give all files today's time: reproducible images have the time 0, which a zip file cannot hold."""
    for folder, _, names in os.walk(tree):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            os.utime(path)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
