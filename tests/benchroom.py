"""A cluster and an arm in one, for scenarios of the comparison: no program runs, and the audit log says what would be."""

import json


class StandIn:
    """A cluster and an arm in one: four pods run per job, and what fails is replaced or is not."""

    name = "stand-in"
    job_resource = "apis/example/v1/jobs"
    pod_label = "job"

    def __init__(self, folder, *, replaces):
        self.cluster = self
        self.audit_log = folder / "audit.log"
        self.audit_log.touch()
        self.replaces = replaces
        self.pods = {}
        self.now = 0

    def job(self, name, *, pods):
        return {"kind": "Job", "name": name, "pods": pods}

    def served_job(self, name, *, pods):
        return {"kind": "ServedJob", "name": name, "pods": pods}

    async def request(self, verb, path, body=None, *, content_type=""):
        if path == "apis/example/v1/servedjobs":
            self.create(f"{body['name']}", "ps-0")
            body = {**body, "pods": body["pods"] - 1}
        if verb == "POST":
            for number in range(body["pods"]):
                self.create(body["name"], number)
                self.log(
                    "create", "bench:operator", f"{body['name']}-{number}", what="pods", job=body["name"]
                )
        elif verb == "PATCH":
            self.fail(path.split("/")[-2])
        return {"items": list(self.pods.values())}

    def create(self, job, number):
        name = f"{job}-{number}"
        self.pods[name] = {
            "metadata": {"name": name, "uid": f"{name}-{self.now}", "labels": {"job": job}},
            "spec": {"nodeName": "node", "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        }

    def fail(self, name):
        self.log("patch", "admin", name)
        if self.replaces:
            job = self.pods[name]["metadata"]["labels"]["job"]
            number = name.removeprefix(f"{job}-")
            self.log("create", "bench:operator", name, what="pods", job=job)
            self.create(job, number)
            self.log("patch", "kwok", name)
        else:
            self.pods[name]["status"]["phase"] = "Failed"

    def log(self, verb, user, name, *, what="pods/status", job=""):
        self.now += 1
        resource, _, subresource = what.partition("/")
        at = f"2026-01-01T00:{self.now // 60:02}:{self.now % 60:02}.000000Z"
        event = {
            "kind": "Event",
            "stage": "ResponseComplete",
            "verb": verb,
            "user": {"username": user},
            "objectRef": {
                "resource": resource,
                "subresource": subresource,
                "namespace": "bench",
                "name": name,
            },
            "responseStatus": {"code": 200},
            "requestObject": {"metadata": {"labels": {"job": job}}},
            "requestReceivedTimestamp": at,
            "stageTimestamp": at,
        }
        with self.audit_log.open("a") as log:
            log.write(json.dumps(event) + "\n")
