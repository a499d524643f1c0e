"""What each kind of thing looks like on the command line: its id, its columns, its fields."""

from __future__ import annotations

from typing import Final

from onward.cli.output import Column, Row, Shape, age_column, column, time_column
from onward.cli.statuses import ORDER


def selector_of(row: Row) -> str:
    """Whom a job is for, in a word or two."""
    match row.get("selector"):
        case {"expression": str(expression)}:
            return expression
        case {"hostnames": [str(name)]}:
            return name
        case {"hostnames": [str(name), *others]}:
            return f"{name} and {len(others):,} more"
        case {"all": True}:
            return "all"
        case other:
            return str(other or "")


def program_of(row: Row) -> str:
    """What a job runs, in a word or two."""
    params = row.get("params")
    if not isinstance(params, dict):
        return ""
    match params:
        case {"argv": [*words]}:
            return " ".join(map(str, words))
        case {"shell": str(script)}:
            return script
        case _:
            return " ".join(f"{name}={value}" for name, value in params.items())


def argv_of(argv: object) -> str:
    """The arguments that a type fixes, on one line."""
    return " ".join(map(str, _list(argv)))


def labels_of(row: Row) -> str:
    """The labels of a host on one line."""
    labels = row.get("labels")
    return (
        " ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        if isinstance(labels, dict)
        else ""
    )


def counts_of(row: Row) -> dict[str, int]:
    """How many executions of a job are where, in the order of their lives."""
    counts = row.get("counts")
    if not isinstance(counts, dict):
        return {}
    known = {status: counts[status] for status in ORDER if counts.get(status)}
    return {**known, **{status: n for status, n in counts.items() if n and status not in known}}


def counted(row: Row) -> str:
    """The same in words."""
    return ", ".join(f"{count:,} {status}" for status, count in counts_of(row).items())


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _late(value: object) -> str:
    return str(value.get("event") or "yes") if isinstance(value, dict) else ""


def _moved(row: Row) -> str:
    before, after = row.get("from_status"), row.get("to_status")
    return f"{before} → {after}" if before and after and before != after else str(after or "")


def _life(row: Row) -> str:
    if row.get("lives"):
        return "yes"
    return "left" if row.get("stopped_at") else "LOST"


JOB: Final = Shape(
    key="job_id",
    columns=(
        column("job_id", "job", right=True, whole=True),
        column("state", whole=True, mood=True),
        column("command_type", "type"),
        Column("on", selector_of),
        Column("what", program_of),
        Column("counts", counted),
        column("requested_by", "by"),
        age_column("created_at"),
    ),
    fields=(
        *("job_id", "external_id", "state", "allowed", "command_type", "params", "argv", "masked"),
        *("selector", "max_concurrency", "read_only", "timeout_s", "max_retries"),
        *("approval_state", "requested_by", "edited_by", "decided_by", "decided_at"),
        *("decision_reason", "paused_at", "cancelled_at", "cancelled_by", "retry_of"),
        *("request_id", "total", "counts", "version", "created_at", "updated_at", "finished_at"),
    ),
    nothing="There is no such job.",
)
EXECUTION: Final = Shape(
    key="execution_id",
    columns=(
        column("execution_id", "execution", right=True, whole=True),
        column("job_id", "job", right=True, whole=True),
        column("host"),
        column("status", whole=True, mood=True),
        column("cause"),
        column("exit_code", "exit", right=True, whole=True),
        column("attempt", right=True, whole=True),
        Column("late", lambda row: _late(row.get("late_result"))),
        column("error"),
        age_column("updated_at"),
    ),
    fields=(
        *("execution_id", "job_id", "host_id", "host", "status", "epoch", "version", "attempt"),
        *("retries", "due_at", "deadline_at", "worker_id", "cause", "exit_code", "error"),
        *("late_result", "output", "created_at", "updated_at", "finished_at"),
    ),
    nothing="There is no such execution.",
)
EVENT: Final = Shape(
    key="event",
    columns=(
        time_column("at"),
        column("event", whole=True),
        column("verdict", whole=True, mood=True),
        Column("status", _moved),
        column("epoch", right=True),
        column("source"),
        column("detail"),
    ),
    fields=("at", "event", "verdict", "from_status", "to_status", "epoch", "source", "detail"),
    nothing="Nothing was said about it yet.",
)
DEED: Final = Shape(
    key="event",
    columns=(
        time_column("at"),
        column("event", whole=True),
        column("by"),
        column("detail"),
    ),
    fields=("at", "event", "by", "detail"),
)
LOG_LINE: Final = Shape(
    key="line",
    columns=(column("stream"), column("text")),
    fields=("epoch", "line", "at", "stream", "text"),
    nothing="It has printed nothing.",
)
GROUP: Final = Shape(
    key="output",
    columns=(
        column("count", right=True, whole=True),
        column("status", whole=True, mood=True),
        column("exit_code", "exit", right=True),
        column("cause"),
        Column("hosts", lambda row: ", ".join(map(str, _list(row.get("hosts"))))),
    ),
    fields=(
        *("output", "known", "status", "exit_code", "cause", "count", "hosts", "execution_id"),
        *("lines", "more"),
    ),
    nothing="Nothing of it has ended yet.",
)
CAUSE: Final = Shape(
    key="cause",
    columns=(
        column("count", right=True, whole=True),
        column("status", whole=True, mood=True),
        column("cause"),
        column("late", right=True),
        column("host"),
        column("execution_id", "execution", right=True),
        column("error"),
    ),
    fields=("status", "cause", "count", "late", "execution_id", "host", "error"),
    nothing="Nothing of it has failed.",
)
HOST: Final = Shape(
    key="name",
    columns=(
        column("name"),
        column("channel", whole=True),
        column("address"),
        column("state", whole=True, mood=True),
        Column("labels", labels_of),
    ),
    fields=(
        *("host_id", "name", "labels", "channel", "address", "state", "version"),
        *("created_at", "updated_at"),
    ),
    nothing="There is no such host.",
)
BLOCK: Final = Shape(
    key="host_name",
    columns=(
        column("host_name", "host"),
        column("command_type", "type"),
        column("owner"),
        column("reason"),
        Column("in force", lambda row: row.get("in_force")),
        Column("until", lambda row: row.get("expires_at") or "it is lifted"),
        age_column("created_at"),
    ),
    fields=(
        *("host_id", "host_name", "command_type", "reason", "owner", "created_at", "expires_at"),
        "in_force",
    ),
    nothing="Nothing is forbidden.",
)
COMMAND: Final = Shape(
    key="cmd_id",
    columns=(
        column("cmd_id", "command", whole=True),
        column("lifecycle"),
        column("node"),
        column("type"),
        column("status", whole=True, mood=True),
        column("error_code", "error"),
        age_column("created_at"),
    ),
    fields=(
        *("cmd_id", "lifecycle", "node", "type", "task_id", "status", "epoch", "version"),
        *("timeout_s", "created_at", "updated_at", "deadline_at", "due_at", "finished_at"),
        *("duration_ms", "result_code", "error_code"),
        *("params", "error_message", "result", "late_result", "allowed"),
    ),
    nothing="There is no such command.",
)
VERDICT: Final = Shape(
    key="verdict",
    columns=(),
    fields=("verdict", "changed", "cmd_id", "lifecycle", "status", "epoch", "version"),
)
TYPE: Final = Shape(
    key="name",
    columns=(
        column("name"),
        column("needs_approval", "approval"),
        column("read_only"),
        column("timeout_s", "timeout", right=True),
        column("max_retries", "retries", right=True),
        Column("argv", lambda row: argv_of(row.get("argv"))),
        Column("masked", lambda row: ", ".join(map(str, _list(row.get("masked"))))),
    ),
    fields=(
        *("name", "needs_approval", "read_only", "timeout_s", "max_retries", "argv", "masked"),
    ),
    nothing="There is no such type.",
)
WORKER: Final = Shape(
    key="worker_id",
    columns=(
        column("worker_id", "worker", right=True, whole=True),
        column("name"),
        Column("lives", _life, mood=True),
        column("running", right=True),
        column("refused", right=True),
        age_column("beat_at", "breathed"),
        age_column("progress_at", "got on"),
        age_column("started_at", "started"),
    ),
    fields=(
        *("worker_id", "name", "started_at", "beat_at", "progress_at", "stopped_at", "lives"),
        *("refused", "running"),
    ),
    nothing="No worker was there in the last day: start `onward up`.",
)
KEY: Final = Shape(
    key="id",
    columns=(
        column("id", "key", right=True, whole=True),
        column("name"),
        column("person"),
        column("role"),
        column("created_by", "made by"),
        age_column("created_at"),
        column("revoked_by", "revoked by"),
    ),
    fields=(
        *("id", "name", "person", "role", "created_at", "created_by", "revoked_at", "revoked_by"),
        "key",
    ),
)
AGENT: Final = Shape(
    key="host",
    columns=(
        column("host"),
        column("connected"),
        age_column("since", "for"),
        column("version"),
        column("remote", "from"),
    ),
    fields=("host_id", "host", "connected", "since", "version", "remote"),
    nothing="No agent was ever connected.",
)
AUDIT: Final = Shape(
    key="subject",
    columns=(
        time_column("at"),
        column("by"),
        column("deed"),
        column("kind"),
        column("subject"),
        column("detail"),
    ),
    fields=("at", "by", "deed", "kind", "subject", "detail", "request_id"),
    nothing="Nobody did anything of the kind.",
)
ME: Final = Shape(
    key="person",
    columns=(),
    fields=("key_id", "name", "person", "role", "permissions", "session"),
)
