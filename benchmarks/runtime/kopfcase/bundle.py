"""What both operators share: the kind, and what a child looks like."""

from __future__ import annotations

from typing import Any

__all__ = ["CHILDREN", "GROUP", "PLURAL", "VERSION", "bundle", "child", "definition"]

GROUP, VERSION, PLURAL = "bench.example.com", "v1", "bundles"
CHILDREN = 3


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "singular": "bundle", "kind": "Bundle"},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": schema, "status": schema},
                        }
                    },
                }
            ],
        },
    }


def bundle(number: int) -> dict[str, Any]:
    """Return one Bundle."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Bundle",
        "metadata": {"name": f"bundle-{number}"},
        "spec": {"children": CHILDREN},
    }


def child(parent: str, namespace: str, number: int, *, owner: dict[str, Any]) -> dict[str, Any]:
    """Return one of a Bundle's ConfigMaps."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{parent}-{number}",
            "namespace": namespace,
            "labels": {"bundle": parent},
            "ownerReferences": [owner],
        },
        "data": {"number": str(number)},
    }
