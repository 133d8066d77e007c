"""Settings that Amazon's agent does not have."""

from __future__ import annotations

import re
from functools import partial

from sexton.core import values
from sexton.core.values import BadValue
from sexton.settings.row import Setting


def _account(raw: str) -> str:
    if not re.fullmatch(r"[0-9]{12}", raw):
        raise BadValue("must be twelve digits")
    return raw


def _url(raw: str) -> str:
    if not re.fullmatch(r"https?://[^/?#\s]+/?", raw):
        raise BadValue("must be the URL of a host without a path, such as https://control-1.example.com:7070")
    return raw.rstrip("/")


def _namespace(raw: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z._/#:-]{1,255}", raw) or raw.startswith(("AWS/", ":")):
        raise BadValue("must be a namespace of up to 255 letters, digits and ._/#:- that does not begin with AWS/")
    return raw


def _log_endpoint(raw: str) -> str:
    return raw if raw == "aws" else _url(raw)


ROWS: tuple[Setting, ...] = (
    Setting("SEXTON_LISTEN", "listen", values.text, "address and port of the control plane"),
    Setting(
        "SEXTON_INTROSPECTION",
        "introspection",
        values.address,
        "address and port of the agent's introspection and metrics; off means none",
    ),
    Setting(
        "SEXTON_TASK_ENDPOINT_PORT",
        "task_endpoint_port",
        values.port_or_off,
        "port at which the agent serves what tasks find at 169.254.170.2, another one where it is taken; off means "
        "that they find nothing there",
    ),
    Setting(
        "SEXTON_SHUTDOWN_DRAIN",
        "shutdown_drain",
        values.boolean,
        "when the host shuts down, drain this container instance, for good, and stop its tasks in their own time",
    ),
    Setting("SEXTON_ACCOUNT_ID", "account", _account, "account id in the control plane's ARNs", strict=True),
    Setting(
        "SEXTON_STORE",
        "store",
        values.text,
        "where the control plane keeps its records, such as etcd://host:2379,other:2379; empty means a file in the "
        "data directory",
        secret=True,  # it may hold a password
    ),
    Setting(
        "SEXTON_IDENTITY_CERTIFICATES",
        "identity_certificates",
        values.text,
        "PEM file of the certificates that EC2 signs identity documents with; only hosts with such a document may "
        "register then. Empty means that documents are taken unsigned",
    ),
    Setting(
        "SEXTON_ROLES",
        "roles",
        values.text,
        "file that says where the keys of tasks' roles come from; there need be none",
    ),
    Setting(
        "SEXTON_EVENTS_KEPT",
        "events_kept",
        partial(values.integer, lowest=1, highest=10_000_000),
        "events that the stream of state changes keeps; the oldest go",
    ),
    Setting(
        "SEXTON_LOG_SPOOL_MB",
        "log_spool",
        partial(values.integer, lowest=8, highest=1_000_000),
        "disk for lines of tasks with the driver awslogs that cannot be delivered yet; what finds no room is dropped "
        "and counted",
        "MiB",
    ),
    Setting(
        "SEXTON_AGENT_LOG_GROUP",
        "agent_log_group",
        values.text,
        "log group that gets the agent's own log as well, in a stream named after the container instance; made when it "
        "is not there. It is at SEXTON_LOGS_ENDPOINT, else where the agent's tasks come from, else in CloudWatch",
    ),
    Setting(
        "SEXTON_LOGS_MAX_MB",
        "logs_max",
        partial(values.integer, lowest=16, highest=10_000_000),
        "disk that the control plane's log groups may take, compressed; beyond it the oldest lines leave",
        "MiB",
    ),
    Setting(
        "SEXTON_LOGS_ENDPOINT",
        "logs_endpoint",
        _log_endpoint,
        "where tasks with the driver awslogs send their lines unless their definition names an endpoint: a URL, or aws "
        "for CloudWatch; empty means this control plane",
        strict=True,
    ),
    Setting(
        "SEXTON_ADVERTISE",
        "advertise",
        _url,
        "URL at which agents and other control planes reach this one; empty means the address it listens on",
        strict=True,
    ),
    Setting("SEXTON_TLS_CERT", "tls_cert", values.text, "PEM file with the control plane's certificate and its chain"),
    Setting("SEXTON_TLS_KEY", "tls_key", values.text, "PEM file with that certificate's key"),
    Setting(
        "SEXTON_INSECURE_PLAINTEXT",
        "insecure_plaintext",
        values.boolean,
        "serve other machines without TLS: everybody on the way can read what is sent",
    ),
    Setting(
        "AWS_CA_BUNDLE",
        "ca_bundle",
        values.text,
        "PEM file of certificates that the agent and the command line trust besides the system's",
    ),
    Setting(
        "SEXTON_KEEP_STOPPED",
        "keep_stopped",
        values.duration,
        "how long the control plane shows a task that has stopped",
        "seconds",
        minimum=1.0,
    ),
    Setting(
        "SEXTON_SERVICE_SETTLE",
        "service_settle",
        values.duration,
        "how long a service's task runs before it counts as healthy",
        "seconds",
        minimum=0.1,
    ),
    Setting(
        "SEXTON_CLOUDWATCH_NAMESPACE",
        "cloudwatch",
        _namespace,
        "namespace of CloudWatch to which the agent puts its tasks' metrics every minute, such as "
        "ECS/ContainerInsights; empty means that none are put",
    ),
    Setting(
        "SEXTON_PULL_LIMIT",
        "pull_limit",
        partial(values.integer, lowest=1, highest=1000),
        "most images pulled at once from one registry; the others wait for their turn",
        "images",
    ),
    Setting(
        "SEXTON_DISK_RESERVE",
        "disk_reserve",
        partial(values.integer, lowest=-1, highest=90),
        "part of the engine's disk that is kept free: below it, what no task uses is removed early; -1 means none",
        "percent",
    ),
    Setting(
        "SEXTON_GPU_INFO",
        "gpu_info",
        values.text,
        'file that lists this host\'s GPUs instead of the driver, {"DriverVersion": "...", "GPUIDs": ["GPU-..."]}',
    ),
    Setting("SEXTON_DEBUG_LOOP", "debug_loop", values.boolean, "warn of anything that blocks the event loop"),
)
