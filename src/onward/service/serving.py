"""What the handlers of a process work with, made from what is open."""

from __future__ import annotations

import random
from secrets import token_bytes

from onward.api.services import Services
from onward.channels.agent.hub import Hub
from onward.channels.keyring import KEY_BYTES, KeyRing
from onward.channels.platform import file as platforms
from onward.engines.equipment import pace
from onward.fleet.attendance import Attendance
from onward.settings import Settings
from onward.store.database import Pool
from onward.store.keys import Keys
from onward.store.sessions import Sessions
from onward.trading.market import Market
from onward.trading.money import currencies
from onward.wiring import Onward


def services(
    opened: Onward,
    *,
    settings: Settings | None = None,
    pool: Pool | None = None,
    keyring: KeyRing | None = None,
    url: str = "",
) -> Services:
    """Return the services of a process; with other settings or another pool, if they are given.

    Without a `keyring`, the keys of agents end with the process. `url` is where others reach it, to
    send through its agents.
    """
    settings = settings or opened.settings
    pool = pool or opened.commands.pool
    keys = Keys(pool)
    keyring = keyring or KeyRing(token_bytes(KEY_BYTES))
    attendance = Attendance(
        pool,
        keyring,
        url=settings.hub_url or url,
        backoff=pace(settings).backoff,
        chance=random.SystemRandom().random,
        lost_after_s=settings.worker_lost_after_s,
    )
    return Services(
        settings=settings,
        pool=pool,
        commands=opened.commands,
        keys=keys,
        sessions=Sessions(pool, keys),
        locks=opened.locks,
        market=Market(
            pool,
            opened.tokens,
            opened.posts,
            currencies(settings.currencies),
            settings.commission_bp,
        ),
        keyring=keyring,
        attendance=attendance,
        hub=Hub(attendance),
        platforms=platforms.load(settings.platforms),
    )
