"""The Celery application: how it is set up, and its tasks.

The broker is not trusted. What it brings is JSON, the name of one of our tasks, and ids that are
looked up; everything else is refused, logged and forgotten.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from celery import Celery, Task, signals
from kombu import Exchange, Queue

from onward.engines.celery import gate, names, process
from onward.errors import InvalidInput
from onward.settings import Settings
from onward.store.inputs import integer, shown

_TICK_S: Final = 1.0
_VISIBILITY_S: Final = 3_600
_SOCKET_S: Final = 10.0
_TRACE_MAX: Final = 255


def configuration() -> dict[str, Any]:
    """Return the configuration, made from the settings when Celery first asks for it."""
    settings = Settings()
    broker = process.broker_url(settings)
    queue_arguments = {"x-queue-type": "quorum"} if broker.startswith("amqp") else None
    options: dict[str, Any] = {
        "visibility_timeout": _VISIBILITY_S,
        # Without it, whoever publishes on a connection that is half open waits for ever.
        "socket_timeout": _SOCKET_S,
        "socket_connect_timeout": _SOCKET_S,
        "socket_keepalive": True,
        "health_check_interval": _SOCKET_S,
    }
    # Whoever sends a hint does not wait for a broker that is away: it will be sent again.
    patience = {"max_retries": 1, "interval_start": 0.1, "interval_step": 0.1}
    return {
        "broker_url": broker,
        "broker_transport_options": patience | ({} if broker.startswith("amqp") else options),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "task_default_queue": names.CARE,
        "task_queues": [
            Queue(name, Exchange(name), routing_key=name, queue_arguments=queue_arguments)
            for name in names.QUEUES
        ],
        "task_routes": {
            names.RUN_SHARD: {"queue": names.RUNS},
            names.RUN_EXECUTION: {"queue": names.RUNS},
        },
        "task_create_missing_queues": False,
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "result_expires": None,  # or Beat asks for the cleaning of results that nobody keeps
        "task_acks_late": True,
        # A message that brought down the process which took it would bring down the next one, too.
        "task_reject_on_worker_lost": False,
        "task_time_limit": names.LIMIT_S,
        "worker_prefetch_multiplier": 1,
        "worker_consumer": "onward.engines.celery.gate:Gate",
        # Longer than a process waits for its server; by then, it ends itself.
        "worker_proc_alive_timeout": process.READY_S + _SOCKET_S,
        "worker_enable_remote_control": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_detect_quorum_queues": True,
        "beat_schedule": {
            name: {
                "task": name,
                "schedule": _TICK_S,
                # Ticks that nobody took in time are of no use to anybody.
                "options": {"expires": 10 * _TICK_S, "queue": names.CARE},
            }
            for name in (names.PUBLISH_OUTBOX, names.RECONCILE)
        },
        "beat_max_loop_interval": math.ceil(_TICK_S),
        "timezone": "UTC",
    }


class Hint(Task[Any, Any]):
    """A task whose message may say anything: what cannot be read is refused, and not done."""

    def __call__(self, *given: object, **named: object) -> None:
        """Do what a message asks for, under the request that it comes from."""
        with structlog.contextvars.bound_contextvars(**_trace(self.request.get(names.TRACE))):
            try:
                self._refuse_strangers(given, named)
                self.run(*given, **named)
            except InvalidInput as error:
                gate.refused(str(error), task=self.name)

    def _refuse_strangers(self, given: Sequence[object], named: Mapping[str, object]) -> None:
        try:
            inspect.signature(self.run).bind(*given, **named)
        except TypeError as error:
            raise InvalidInput("message", str(error)) from None


def _trace(given: object) -> dict[str, str]:
    """Return what a message says about where it comes from, as far as it is told in our words."""
    if not isinstance(given, dict):
        return {}
    return {
        name: given[name][:_TRACE_MAX]
        for name in ("request_id", "traceparent")
        if isinstance(given.get(name), str)
    }


gate.install()
app = Celery("onward", set_as_current=False, task_cls=Hint)
app.add_defaults(configuration)


@app.task(name=names.PUBLISH_OUTBOX)
def publish_outbox() -> None:
    """Hand on what the outbox holds."""
    process.crew().call("publish")


@app.task(name=names.RECONCILE)
def reconcile() -> None:
    """Put right what nobody was told about, and send again what is due and was not taken."""
    process.crew().call("reconcile")


@app.task(name=names.PLAN_JOB)
def plan_job(job_id: object) -> None:
    """Queue the executions of a job, and tell workers of them."""
    process.crew().call("plan", integer("job_id", job_id, minimum=1))


@app.task(name=names.RUN_SHARD)
def run_shard(execution_ids: object) -> None:
    """Take what is due on the hosts of these executions, as far as it is free."""
    process.crew().call("take", ids_of(execution_ids))


@app.task(name=names.RUN_EXECUTION)
def run_execution(execution_id: object) -> None:
    """Take what is due on the host of one execution."""
    process.crew().call("take", [integer("execution_id", execution_id, minimum=1)])


def ids_of(given: object) -> list[int]:
    """Return ids as they came with a message, or say what is wrong with them."""
    if not isinstance(given, list) or not given:
        raise InvalidInput("execution_ids", f"expected a list of ids, not {shown(given)}")
    if len(given) > names.IDS_MAX:
        raise InvalidInput("execution_ids", f"{len(given)} are more than {names.IDS_MAX}")
    return [integer("execution_ids", each, minimum=1) for each in given]


@signals.worker_process_init.connect(weak=False)
def _begin(**_: object) -> None:
    process.begin(app)


@signals.worker_process_shutdown.connect(weak=False)
def _end(**_: object) -> None:
    process.end()


@app.on_after_finalize.connect
def _forget_others(sender: Celery, **_: object) -> None:
    """Keep our own tasks only: Celery brings a few that call whatever a message names."""
    for name in set(sender.tasks) - names.TASKS:
        sender.tasks.unregister(name)
