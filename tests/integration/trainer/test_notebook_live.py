"""The notebook pod on a real cluster, under the shipped role; its image has no gateway here, which is told."""

import json
import subprocess
import sys

import pytest

WAITS = ["python3", "-c", "import time; time.sleep(600)  # it reports no steps"]


@pytest.fixture
def trainer(job):
    return job.make("waits", command=WAITS, topology={"workers": 1}, notebook={})


def condition(trainer):
    found = [each for each in trainer.status().get("conditions", ()) if each["type"] == "NotebookReady"]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


def wait_reason(trainer, until, reason):
    until(
        lambda: condition(trainer)[0] == reason, 90, reason, tell=lambda: (condition(trainer), trainer.pods())
    )
    return condition(trainer)[1]


def wait_at_work(trainer, until):
    until(
        lambda: trainer.status().get("membership", {}).get("phase") == "Active",
        90,
        "work",
        tell=trainer.status,
    )


def notebooks(trainer):
    return {name: pod for name, pod in trainer.pods().items() if "notebook" in name}


def plugin(trainer, *arguments):
    access = [f"--kubeconfig={trainer.world.cluster.kubeconfig}", f"--namespace={trainer.namespace}"]
    call = [
        sys.executable,
        "-m",
        "trainer_operator.cli.plugin.main",
        "notebook",
        "waits",
        *arguments,
        *access,
    ]
    return subprocess.run(call, capture_output=True, text=True, check=False, timeout=120)


def test_a_notebook_lives_beside_the_training(trainer, until):
    """JK2, TN3, RB1, TN5: no token, then one that the user's plugin made; lost, suspended, resumed, removed."""
    world, place = trainer.world, ("-n", trainer.namespace)
    wait_at_work(trainer, until)
    said = wait_reason(trainer, until, "TokenMissing")
    assert "`kubectl trainer notebook waits` makes it" in said
    asked = plugin(trainer, "--timeout=1s")
    assert asked.returncode == 7, asked
    token = world.get("secret", "waits-notebook", *place)
    assert token["metadata"]["ownerReferences"][0]["uid"] == trainer.object()["metadata"]["uid"]
    said = wait_reason(trainer, until, "GatewayFails")
    assert "no jupyter-kernel-gateway" in said
    told = trainer.events()
    assert {"NotebookTokenMissing", "NotebookGatewayFails"} <= set(told)
    value = token["data"]["token"]
    assert value not in json.dumps([trainer.object(), world.get("events", *place), trainer.pods()])

    ((name, pod),) = notebooks(trainer).items()
    world.kubectl("delete", "pod", name, *place)
    until(
        lambda: [p for p in notebooks(trainer).values() if p["metadata"]["uid"] != pod["metadata"]["uid"]],
        60,
        "another pod",
    )
    assert "NotebookLost" in trainer.events()

    trainer.patch({"suspend": True})
    trainer.wait_phase("Suspended", 90)
    until(lambda: not notebooks(trainer), 60, "no pod while it is suspended")
    assert wait_reason(trainer, until, "Suspended") == ""
    trainer.patch({"suspend": False})
    wait_at_work(trainer, until)
    until(lambda: notebooks(trainer), 60, "a pod again")

    trainer.patch({"env": [{"name": "KERNEL_UID", "value": "0"}]})
    said = wait_reason(trainer, until, "VariableRefused")
    assert said.startswith("spec.env has 'KERNEL_UID', which a notebook cannot have")
    until(lambda: not notebooks(trainer), 60, "no pod with that")
    assert plugin(trainer, "--timeout=5s").returncode == 7

    hostile = 'a\n"}],"hostNetwork":true,{"x":"$(KG_AUTH_TOKEN)'
    trainer.patch({"env": [{"name": "X", "value": hostile}]})
    until(lambda: notebooks(trainer), 60, "a pod")
    ((_, pod),) = notebooks(trainer).items()
    assert {"name": "X", "value": hostile} in pod["spec"]["containers"][0]["env"]
    assert "hostNetwork" not in pod["spec"]

    trainer.patch({"notebook": None})
    wait_reason(trainer, until, "NotConfigured")
    until(lambda: not notebooks(trainer), 60, "no pod without the field")
    assert trainer.status()["membership"]["phase"] == "Active"
    assert trainer.status()["restarts"] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kernelName", "python3; rm -rf /"),
        ("kernelName", "a\nb: c"),
        ("image", "x\nhostNetwork: true"),
        ("idleTimeoutSeconds", 0),
    ],
)
def test_what_could_be_an_injection_is_refused_by_the_schema(job, field, value):
    """EC17, CR3: in one sentence that names the field."""
    with pytest.raises(Exception, match=rf"spec\.notebook\.{field}"):
        job.make("hostile", command=WAITS, notebook={field: value})
