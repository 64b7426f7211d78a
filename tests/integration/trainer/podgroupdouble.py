"""A double of Volcano's PodGroup: the fields that the operator writes and reads, of the same types, in the same group.

There is no Volcano behind it. Tests let a group into its queue by writing its phase, and bind the pods themselves.
"""

GROUP = "scheduling.volcano.sh"
_INTEGER, _TEXT = {"type": "integer", "format": "int32"}, {"type": "string"}
_QUANTITY = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
_SPEC = {
    "minMember": _INTEGER,
    "minResources": {"type": "object", "additionalProperties": _QUANTITY},
    "queue": {**_TEXT, "default": "default"},
    "priorityClassName": _TEXT,
}
_CONDITION = {"type": "object", "properties": dict.fromkeys(("type", "status", "reason", "message"), _TEXT)}
_STATUS = {"phase": _TEXT, "running": _INTEGER, "conditions": {"type": "array", "items": _CONDITION}}

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"podgroups.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "podgroups",
            "singular": "podgroup",
            "kind": "PodGroup",
            "listKind": "PodGroupList",
        },
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": _SPEC},
                            "status": {"type": "object", "properties": _STATUS},
                        },
                    }
                },
            }
        ],
    },
}
