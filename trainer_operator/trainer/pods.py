"""The pod of one member: what the user asked for, with the agent as launcher (AG1, AG3, AG9).

Pure: a Trainer, a member and the operator's settings give a manifest. Names and labels are functions of
(Trainer, role, index, attempt), so a repeated create finds its own earlier one (R1, TR24). Our labels and our
environment come last and win (TR23, PS4).
"""

from collections.abc import Mapping
from typing import Any

from trainer_operator.api import names
from trainer_operator.api.bucket import ClaimBucket, FileBucket, S3Bucket, parse_bucket
from trainer_operator.api.meta import API_VERSION, ApiModel
from trainer_operator.api.pod import SecurityContext
from trainer_operator.api.topology import RoleSettings
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import entrypoint, podgroup, proximity, weightfiles
from trainer_operator.trainer.exclusion import away_from, excluded_names
from trainer_operator.trainer.service import AGENT_PORT, host_name, service_name
from trainer_operator.trainer.serving import apart_from_replicas
from trainer_operator.trainer.views import Settings
from trainer_operator.trainer.volumes import claim_of

AGENT_FOLDER = "/trainer/agent"
AGENT_MOUNT: Mapping[str, Any] = {"name": "trainer-agent", "mountPath": AGENT_FOLDER}
STORE_MOUNT = "/trainer/checkpoints"
CREDENTIALS_MOUNT = "/trainer/store-credentials"
"""Where the Secret with the keys of a bucket appears; the operator never reads it (TN3)."""
VOLUME_MOUNT = "/trainer/volume"
"""Where a member's own volume appears (topology.storage)."""
TOKEN_FOLDER = "/var/run/secrets/trainer-operator"  # noqa: S105 - a path, not a secret
TOKEN_AUDIENCE = "trainer-operator"  # noqa: S105
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Kueue holds back a pod with it until the queue of this name has room."""
STARTUP_SECONDS = 1800
PORT_RANGE_START = 32768
RESTRICTED: Mapping[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What PodSecurity `restricted` asks of every container (PS1)."""
POD_SECURITY = frozenset({"fsGroup", "supplementalGroups"})
"""Fields of a security context that Kubernetes knows for pods only."""


def pod_manifest(trainer: Trainer, member: MemberId, attempt: int, settings: Settings) -> dict[str, Any]:
    """Build the manifest of a member's pod."""
    spec = trainer.spec
    role = getattr(spec.topology.roles, member.role, None) or RoleSettings()
    template = spec.topology.pod_spec
    name = names.pod_name(trainer.metadata.name, member.role, member.index, attempt)
    labels = {
        **(template.labels or {}),
        **(role.labels or {}),
        **names.pod_labels(trainer.metadata.name, member.role, member.index, attempt),
    }
    labels[names.EPOCH_LABEL] = str(trainer.status.membership.epoch)
    group = podgroup.kind_of(trainer)
    if spec.scheduling.queue is not None and not (group is not None and group.queues):
        labels[QUEUE_LABEL] = spec.scheduling.queue
    group_labels, group_annotations = podgroup.pod_marks(trainer)
    labels |= group_labels
    placement = proximity.placement_label(trainer, trainer.status.allocation)
    if placement:
        labels[names.PLACEMENT_LABEL] = placement
    pod_spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "hostname": host_name(trainer, member),
        "subdomain": service_name(trainer),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "nodeSelector": _node_selector(trainer, role),
        "tolerations": _tolerations(trainer, role),
        "affinity": away_from(
            proximity.near_members(trainer, apart_from_replicas(trainer, member, _wire(role.affinity))),
            excluded_names(trainer.status),
        ),
        "serviceAccountName": template.service_account_name,
        "priorityClassName": template.priority_class_name,
        "schedulingGates": [_wire(gate) for gate in role.scheduling_gates or ()],
        "schedulerName": spec.scheduling.scheduler_name,
        "imagePullSecrets": [_wire(secret) for secret in spec.image_pull_secrets or ()],
        "securityContext": {
            "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": _port_range(template.ports)}],
            **pod_security(trainer, settings),
        },
        "initContainers": [
            _installer(settings),
            *weightfiles.init_containers(
                trainer, settings, agent=AGENT_MOUNT, security=container_security(trainer)
            ),
        ],
        "containers": [_trainer_container(trainer, member, attempt, role, settings)],
        "volumes": _volumes(trainer, claim_of(trainer, member, attempt)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": trainer.metadata.namespace,
            "labels": labels,
            "annotations": {**(template.annotations or {}), **(role.annotations or {}), **group_annotations}
            or None,
            "ownerReferences": [owner_reference(trainer)],
        },
        "spec": {key: value for key, value in pod_spec.items() if value not in (None, {}, [])},
    }


def owner_reference(trainer: Trainer) -> dict[str, Any]:
    """Return the controller reference of everything that a Trainer owns."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Trainer",
        "name": trainer.metadata.name,
        "uid": trainer.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def store_directory(trainer: Trainer) -> str:
    """Return where this Trainer's checkpoints are, as its pods see it; empty without a store (CK layout)."""
    checkpoint = trainer.spec.checkpoint
    if checkpoint is None:
        return ""
    match parse_bucket(checkpoint.bucket):
        case ClaimBucket():
            root = STORE_MOUNT
        case FileBucket(path):
            root = path
        case S3Bucket(bucket, inside):
            root = f"s3://{bucket}/{inside}".rstrip("/")
    folder = f"{trainer.metadata.name}-{trainer.metadata.uid[:8]}"
    return "/".join(part for part in (root, checkpoint.prefix, trainer.metadata.namespace, folder) if part)


def _installer(settings: Settings) -> dict[str, Any]:
    return {
        "name": "agent",
        "image": settings.operator_image,
        "command": ["python3", "-I", "-m", "trainer_operator.agent", "install", AGENT_FOLDER],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": [AGENT_MOUNT],
        "securityContext": RESTRICTED,
    }


def _trainer_container(
    trainer: Trainer, member: MemberId, attempt: int, role: RoleSettings, settings: Settings
) -> dict[str, Any]:
    spec = trainer.spec
    template = spec.topology.pod_spec
    image, command, args = role.image or spec.image, role.command or spec.command, role.args or spec.args
    read = entrypoint.recorded(trainer.status, member.role) if not command else None
    if read is not None:
        image, command = entrypoint.pinned(read), tuple(map(_literal, read.command))
        args = args or tuple(map(_literal, read.args))
    resources = role.resources or spec.resources
    mounts = agent_mounts(trainer)
    if spec.topology.storage is not None:
        mounts.append({"name": "trainer-volume", "mountPath": VOLUME_MOUNT})
    snapshot = trainer.status.profile_snapshot
    if snapshot is not None and snapshot.spec.runtime_config is not None:
        mounts.append(
            {
                "name": "trainer-profile",
                "mountPath": snapshot.spec.runtime_config.mount_path,
                "readOnly": True,
            }
        )
    if template.shm_size is not None:
        mounts.append({"name": "trainer-shm", "mountPath": "/dev/shm"})  # noqa: S108 - the path frameworks use
    mounts += weightfiles.mounts(trainer)
    mounts += [_wire(mount) for mount in template.volume_mounts or ()]
    probe = {"port": AGENT_PORT, "scheme": "HTTP"}
    container = {
        "name": "trainer",
        "image": image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["python3", "-I", f"{AGENT_FOLDER}/agent.pyz", "--", *(command or ())],
        "args": list(args or ()),
        "workingDir": spec.working_dir,
        "env": _environment(trainer, member, attempt, role, settings),
        "resources": _wire(resources) if resources is not None else None,
        "volumeMounts": mounts,
        "securityContext": container_security(trainer),
        "startupProbe": {
            "httpGet": {"path": "/livez", **probe},
            "periodSeconds": 1,
            "failureThreshold": STARTUP_SECONDS,
        },
        "livenessProbe": {"httpGet": {"path": "/livez", **probe}, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {"path": "/readyz", **probe}, "periodSeconds": 2},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    return {key: value for key, value in container.items() if value not in (None, {}, [])}


def _literal(word: str) -> str:
    """Keep a word of an image as it is: in a pod's command `$(NAME)` is replaced and `$$` is a `$`."""
    return word.replace("$", "$$")


def _environment(
    trainer: Trainer, member: MemberId, attempt: int, role: RoleSettings, settings: Settings
) -> list[dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    snapshot = trainer.status.profile_snapshot
    for source in (snapshot.spec.env_vars if snapshot is not None else None, trainer.spec.env, role.env):
        for variable in source or ():
            by_name[variable.name] = _wire(variable)
    for ours in agent_environment(trainer, member, attempt, settings):
        by_name[ours["name"]] = ours
    return list(by_name.values())


def agent_environment(
    trainer: Trainer, member: MemberId, attempt: int, settings: Settings
) -> list[dict[str, Any]]:
    """Return what the operator tells an agent; users cannot set it (PS4)."""
    keys = {"TRAINER_STORE_CREDENTIALS": CREDENTIALS_MOUNT} if _credentials(trainer) is not None else {}
    values: Mapping[str, str] = {
        "TRAINER_NAME": trainer.metadata.name,
        "TRAINER_NAMESPACE": trainer.metadata.namespace or "",
        "TRAINER_UID": trainer.metadata.uid,
        "TRAINER_ROLE": member.role,
        "TRAINER_INDEX": str(member.index),
        "TRAINER_ATTEMPT": str(attempt),
        "TRAINER_EPOCHS": str(trainer.spec.epochs),
        "TRAINER_OPERATOR_URLS": ",".join(settings.agent_urls),
        "TRAINER_OPERATOR_CA": settings.agent_ca,
        "TRAINER_TOKEN_FILE": f"{TOKEN_FOLDER}/token",
        "TRAINER_STORE": store_directory(trainer),
        "TRAINER_VOLUME_DIR": VOLUME_MOUNT if trainer.spec.topology.storage is not None else "",
        "TRAINER_AGENT_PORT": str(AGENT_PORT),
        "TRAINER_GRACE_SECONDS": str(trainer.spec.topology.pod_spec.termination_grace_period_seconds),
        **keys,
    }
    fields = {
        "TRAINER_POD_NAME": "metadata.name",
        "TRAINER_POD_UID": "metadata.uid",
        "TRAINER_POD_IP": "status.podIP",
        "TRAINER_NODE_NAME": "spec.nodeName",
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def agent_mounts(trainer: Trainer) -> list[dict[str, Any]]:
    """Return where an agent finds its folder, its token and the store; of the volumes of `agent_volumes`."""
    mounts: list[dict[str, Any]] = [
        {**AGENT_MOUNT},
        {"name": "trainer-token", "mountPath": TOKEN_FOLDER, "readOnly": True},
    ]
    if _credentials(trainer) is not None:
        mounts.append({"name": "trainer-store", "mountPath": CREDENTIALS_MOUNT, "readOnly": True})
    if _claim(trainer) is not None:
        mounts.append({"name": "trainer-checkpoints", "mountPath": STORE_MOUNT})
    return mounts


def agent_volumes(trainer: Trainer) -> list[dict[str, Any]]:
    """Return the volumes that an agent needs: a folder, the token of its pod, and the store or the keys to it."""
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    volumes: list[dict[str, Any]] = [
        {"name": "trainer-agent", "emptyDir": {}},
        {"name": "trainer-token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    credentials = _credentials(trainer)
    if credentials is not None:
        volumes.append({"name": "trainer-store", "secret": {"secretName": credentials}})
    claim = _claim(trainer)
    if claim is not None:
        volumes.append({"name": "trainer-checkpoints", "persistentVolumeClaim": {"claimName": claim}})
    return volumes


def _volumes(trainer: Trainer, own_claim: str | None) -> list[dict[str, Any]]:
    template = trainer.spec.topology.pod_spec
    volumes = agent_volumes(trainer)
    if own_claim is not None:
        volumes.append({"name": "trainer-volume", "persistentVolumeClaim": {"claimName": own_claim}})
    snapshot = trainer.status.profile_snapshot
    if snapshot is not None and snapshot.spec.runtime_config is not None:
        volumes.append(
            {"name": "trainer-profile", "secret": {"secretName": snapshot.spec.runtime_config.secret}}
        )
    if template.shm_size is not None:
        volumes.append(
            {"name": "trainer-shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(template.shm_size)}}
        )
    volumes += weightfiles.volumes(trainer)
    return volumes + [_wire(volume) for volume in template.volumes or ()]


def _claim(trainer: Trainer) -> str | None:
    checkpoint = trainer.spec.checkpoint
    bucket = parse_bucket(checkpoint.bucket) if checkpoint is not None else None
    return bucket.claim if isinstance(bucket, ClaimBucket) else None


def _credentials(trainer: Trainer) -> str | None:
    """Return the Secret with the keys of the bucket, in the Trainer's own namespace (TN1)."""
    checkpoint = trainer.spec.checkpoint
    if checkpoint is None or not isinstance(parse_bucket(checkpoint.bucket), S3Bucket):
        return None
    return checkpoint.credentials_secret


def _node_selector(trainer: Trainer, role: RoleSettings) -> dict[str, str]:
    snapshot = trainer.status.profile_snapshot
    shared = snapshot.spec.node_selector if snapshot is not None else None
    return {**(shared or {}), **(role.node_selector or {})}


def _tolerations(trainer: Trainer, role: RoleSettings) -> list[dict[str, Any]]:
    snapshot = trainer.status.profile_snapshot
    shared = snapshot.spec.tolerations if snapshot is not None else None
    return [_wire(toleration) for toleration in (*(shared or ()), *(role.tolerations or ()))]


def pod_security(trainer: Trainer, settings: Settings) -> dict[str, Any]:
    """Return the security context of a pod: what PodSecurity `restricted` asks, and what the user did (PS1)."""
    return {
        "seccompProfile": {"type": "RuntimeDefault"},
        **({} if settings.allow_root else {"runAsNonRoot": True}),
        **_security(trainer.spec.topology.pod_spec.security_context, of_pod=True),
    }


def container_security(trainer: Trainer) -> dict[str, Any]:
    """Return the security context of a container, with the last word for what PodSecurity `restricted` asks (PS1)."""
    return {**_security(trainer.spec.topology.pod_spec.security_context, of_pod=False), **RESTRICTED}


def _security(context: SecurityContext | None, *, of_pod: bool) -> dict[str, Any]:
    """Return the part of a user's security context that belongs to the pod, or to the container."""
    asked = context.dump() if context is not None else {}
    return {name: value for name, value in asked.items() if (name in POD_SECURITY) is of_pod}


def _port_range(count: int) -> str:
    return f"{PORT_RANGE_START} {PORT_RANGE_START + count - 1}"


def _wire(model: ApiModel | None) -> Any:
    return model.dump() if model is not None else None
