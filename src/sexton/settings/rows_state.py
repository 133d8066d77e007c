"""Settings of what this host remembers and what it says: state, logs, the health check."""

from __future__ import annotations

from functools import partial

from sexton.core import values
from sexton.settings.row import Setting
from sexton.settings.tree import LEVELS

ROWS: tuple[Setting, ...] = (
    Setting(
        "ECS_DATADIR", "data_dir", values.text, "directory of everything that must survive a restart", key="DataDir"
    ),
    Setting(
        "ECS_CHECKPOINT",
        "checkpoint",
        values.boolean,
        "remember this container instance and its tasks; without, every start registers a new one",
        key="Checkpoint",
    ),
    Setting("ECS_LOGLEVEL", "log_level", partial(values.choice, words=LEVELS), "least severe line that is logged"),
    Setting(
        "ECS_LOGLEVEL_ON_INSTANCE",
        "log_level_file",
        partial(values.choice, words=(*LEVELS, "off")),
        "the same for the log file alone; unset means as ECS_LOGLEVEL",
    ),
    Setting("ECS_LOGFILE", "log_file", values.text, "file that the log goes to as well as to standard error"),
    Setting(
        "ECS_LOG_OUTPUT_FORMAT", "log_format", partial(values.choice, words=("logfmt", "json")), "shape of a log line"
    ),
    Setting(
        "ECS_LOG_ROLLOVER_TYPE",
        "log_rollover",
        partial(values.choice, words=("size", "hourly", "none")),
        "when a log file is put aside and a new one begun",
    ),
    Setting(
        "ECS_LOG_MAX_FILE_SIZE_MB",
        "log_max_mb",
        values.positive,
        "size at which a log file is put aside, where the size decides; a million bytes each",
        "MB",
    ),
    Setting(
        "ECS_LOG_MAX_ROLL_COUNT",
        "log_max_rolls",
        partial(values.integer, lowest=1, highest=100_000),
        "how many log files that were put aside are kept",
    ),
    Setting(
        "ECS_AUDIT_LOGFILE",
        "audit_file",
        values.text,
        "file with a line for each request for a role's keys, put aside like the log; empty means audit.log beside "
        "ECS_LOGFILE, or in the data directory",
        key="CredentialsAuditLogFile",
    ),
    Setting(
        "ECS_AUDIT_LOGFILE_DISABLED",
        "audit_disabled",
        values.boolean,
        "write no such file",
        key="CredentialsAuditLogDisabled",
    ),
    Setting(
        "ECS_AGENT_HEALTHCHECK_HOST",
        "healthcheck_host",
        values.text,
        "host that 'sexton agent --healthcheck' asks",
    ),
)
