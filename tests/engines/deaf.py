"""A Celery worker that stops listening as soon as it is ready, and whose watch is impatient."""

from __future__ import annotations

from celery import signals

from onward.engines.celery import app, names
from onward.engines.celery.process import CeleryBroker
from onward.service.celery_program import Watch, work


@signals.worker_ready.connect(weak=False)
def _listen_no_more(sender: object, **_: object) -> None:
    for queue in (names.RUNS, names.CARE):
        sender.cancel_task_queue(queue)  # type: ignore[attr-defined]  # it is the consumer


if __name__ == "__main__":
    waiting = CeleryBroker(app).waiting
    work(["--concurrency=2"], Watch(waiting, silent_s=0.5, look_s=0.05))
