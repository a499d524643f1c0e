"""What the handlers of a process work with, made from what is open."""

from __future__ import annotations

from onward.api.services import Services
from onward.settings import Settings
from onward.store.database import Pool
from onward.store.keys import Keys
from onward.trading.market import Market
from onward.trading.money import currencies
from onward.wiring import Onward


def services(
    opened: Onward, *, settings: Settings | None = None, pool: Pool | None = None
) -> Services:
    """Return the services of a process; with other settings or another pool, if they are given."""
    settings = settings or opened.settings
    pool = pool or opened.commands.pool
    return Services(
        settings=settings,
        pool=pool,
        commands=opened.commands,
        keys=Keys(pool),
        locks=opened.locks,
        market=Market(
            pool,
            opened.tokens,
            opened.posts,
            currencies(settings.currencies),
            settings.commission_bp,
        ),
    )
