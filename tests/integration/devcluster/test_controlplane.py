import json


def test_pods_are_accepted_in_a_fresh_namespace(kubectl, namespace):
    out = kubectl("run", "one", "-n", namespace, "--image=none", "--restart=Never", "-o", "json")
    assert json.loads(out)["metadata"]["name"] == "one"
