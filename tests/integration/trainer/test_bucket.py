"""A whole Trainer with its checkpoints in a bucket: the keys come from a Secret that the operator has no right to read."""

import pytest

from integration.trainer.conftest import DIGITS
from s3server import ACCESS, S3Server
from trainer_operator.agent import index, store
from trainer_operator.agent.backends import open_home


@pytest.fixture
def server():
    server = S3Server()
    yield server
    server.close()


def test_a_trainer_that_loses_all_its_pods_resumes_from_the_bucket(job, until, server, tmp_path):
    """BK, TN1, TN3, RS1, CK1, CK7: nothing of its state is left in the cluster's nodes."""
    bucket = server.make_bucket("training")
    keys = {**ACCESS, "AWS_ENDPOINT_URL": server.url}
    literals = [f"--from-literal={name}={value}" for name, value in keys.items()]
    job.world.kubectl("create", "secret", "generic", "bucket-keys", "-n", job.namespace, *literals)
    digits = job.make(
        "digits",
        logs=tmp_path,
        epochs=2000,
        command=["python3", str(DIGITS), "--mode", "allreduce", "--pace", "0.03", "--log-dir", str(tmp_path)],
        topology={"workers": 2},
        checkpoint={
            "bucket": f"s3://{bucket}/runs",
            "intervalMinutes": 0.05,
            "credentialsSecret": "bucket-keys",
        },
    )
    committed = digits.wait_committed(90)
    digits.world.kubectl(
        "delete", "pods", "-n", digits.namespace, "-l", "trainer-name=digits", "--wait=false"
    )
    until(lambda: digits.status()["membership"]["epoch"] > 1, 60, "a new epoch", tell=digits.status)
    digits.wait_phase("Running", 90)
    status = digits.status()
    assert status["membership"]["restoreStep"] >= committed["step"]
    assert status["failures"] == 0
    digits.wait_trains_on(10)

    folder = f"digits-{digits.object()['metadata']['uid'][:8]}"
    home = open_home(
        f"s3://{bucket}/runs/{digits.namespace}/{folder}", credentials=server.secret(tmp_path / "secret")
    )
    newest = store.CheckpointDir(home, store.committed(home)[0])
    assert index.verify(newest)[1] == []
    listed = digits.world.get("checkpoints", "-n", digits.namespace)["items"]
    assert {
        each["status"].get("storeId") for each in listed if each["status"].get("state") == "Committed"
    } == {store.identify(home)}
