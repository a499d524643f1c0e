"""The engine for more than one machine: Celery brings the hints, PostgreSQL decides.

`celery -A onward.engines.celery` finds `app` here.

1. A message is a hint that carries ids. Lost, it is sent again by whoever looks at the tables next;
   doubled or late, it finds that there is nothing left to claim.
2. No message waits for its time. When something is due stands in PostgreSQL, not in a countdown.
3. A task hands work to the worker of its process and returns. It does not wait for hosts, so it is
   over long before a broker would take its message for lost.
4. Beat is a hint as well: every process looks by itself when nobody else has for a while.
"""

from __future__ import annotations

from onward.engines.celery.app import app

__all__ = ["app"]
