"""A world in which the examples of every route are true, and whether a request has changed it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from onward import dashboard
from onward.api.services import Services
from onward.core.lifecycles import ORDER
from onward.fleet.commands import new_command, new_command_id
from onward.fleet.submit import new_job
from onward.store import jobs, logs, workers
from onward.store.database import Pool
from onward.store.orders import NO_TOKEN
from tests.api.catalogue import CANARY
from tests.api.fleet import Fleet
from tests.present import TESTER

# The things that the examples name.
_TYPES: Final = (("RESTART_SERVICE", False), ("DEPLOY", True))
_HOSTS: Final = (
    ("web-1", '{"role": "web", "zone": "us"}'),
    ("db-1", '{"role": "db", "zone": "eu"}'),
)
_PARAMS: Final = {"password": CANARY}
_COMMAND: Final = "019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77"
_CALLED: Final = "019a9433-7c3e-7d61-8b5e-3f1f3f0c2a78"

# Whatever requests have made; a world that grows would be looked at ever more slowly.
_CLEARING: Final = "".join(
    f"DELETE FROM {each};"  # noqa: S608 - constants
    for each in (
        *("queue", "runs", "failures", "outbox", "executions", "jobs", "job_counts"),
        *("execution_timeline", "execution_logs", "job_timeline", "timeline", "webhook_messages"),
        "audit",
        *("host_command_blocks", "sessions"),
        "hosts WHERE name NOT IN ('web-1', 'db-1')",
        f"commands WHERE cmd_id NOT IN ('{_COMMAND}', '{_CALLED}')",
        "api_keys WHERE created_by <> 'test' OR name = 'used up'",
    )
)

# Somebody with money, pieces of an item, and an order of each side, all of it never used before.
TRADER: Final = "root"
_ORDER: Final = 10**9  # no order that is placed meanwhile gets there
_TRADING: Final = f"""
    DELETE FROM accounts; DELETE FROM account_changes; DELETE FROM operations;
    DELETE FROM transfers; DELETE FROM orders; DELETE FROM order_timeline; DELETE FROM arrivals;
    DELETE FROM book;
    DELETE FROM order_tokens; DELETE FROM deals;
    INSERT INTO accounts (user_id, asset, available, held)
    VALUES ('{TRADER}', 'EUR', 1000000, 1002), ('{TRADER}', 'item:7', 10, 1);
    INSERT INTO operations (id, at, kind, user_id, asset, amount, available, held, version)
    OVERRIDING SYSTEM VALUE
    VALUES ({_ORDER}, now(), 'deposit', '{TRADER}', 'EUR', 1000000, 1000000, 0, 1);
    INSERT INTO order_tokens (user_id, side, token)
    VALUES ('{TRADER}', 'buy', '{NO_TOKEN}'), ('{TRADER}', 'sell', '{NO_TOKEN}');
    INSERT INTO orders (id, side, user_id, item_id, currency, payment_id, price, commission,
                        commission_bp, token, status, created_at, updated_at)
    OVERRIDING SYSTEM VALUE
    SELECT {_ORDER} + n, side, '{TRADER}', 7, 'EUR', {_ORDER}, 1000, 2, 25, '{NO_TOKEN}',
           '{ORDER.initial}', now(), now()
      FROM (VALUES (1, 'buy'), (2, 'sell')) AS s (n, side);
"""  # noqa: S608 - constants

# A token that nobody has used.
_TOKEN: Final = "oat_an-example-of-a-token-that-nobody-has-made"  # noqa: S105 - the docs show it
_ENROLMENT: Final = """
    WITH gone AS (DELETE FROM enrolments)
    INSERT INTO enrolments (digest, host_id, made_by, expires_at)
    SELECT sha256($1::text::bytea), id, 'test', now() + interval '1 hour'
      FROM hosts WHERE name = 'web-1'
        ON CONFLICT (digest) DO UPDATE SET used_at = NULL, used_by = NULL
"""

# What is said about a command that nobody knows is kept, and so is which messages were signed.
_EVIDENCE: Final = frozenset({"timeline", "webhook_messages"})

_CLEARED_EVERY: Final = 40

Snapshot = Mapping[str, tuple[int, int]]

_numbers = count(1)


class World:
    """Command types, hosts, jobs, a command and a key; made anew when somebody has used them."""

    def __init__(self, services: Services, fleet: Fleet) -> None:
        self._services = services
        self._fleet = fleet
        self._ids = {
            "cmd_id": _COMMAND,
            "command_type": "DEPLOY",
            "name": "RESTART_SERVICE",
            "operation_id": str(_ORDER),
            "platform": "aep",
        }
        self.key = ""  # that of somebody who logs in
        self._failed_job = 0
        self._renewed = 0
        self._counting = ""
        self._lsn: object = None
        self._seen: Snapshot = {}

    @classmethod
    async def made(cls, services: Services) -> World:
        """Make it."""
        world = cls(services, await Fleet.made(services.pool))
        world._counting = await _counting(services.pool)
        _, world.key = await services.keys.make("browser", person=TRADER, role="viewer", by=TESTER)
        await world._pool.executemany(
            "INSERT INTO hosts (name, labels) VALUES ($1, $2::text::jsonb)", _HOSTS
        )
        for cmd_id, lifecycle, node in (
            (_COMMAND, "node", "greenhouse-7"),
            (_CALLED, "platform", "sensor-1"),
        ):
            new = new_command(
                services.settings,
                cmd_id=cmd_id,
                lifecycle=lifecycle,
                node=node,
                type="set_relay",
                task_id="64",
                params=_PARAMS,
                timeout_s=None,
                source="test",
            )
            await services.commands.create(new)
        await world.renew()
        return world

    @property
    def _pool(self) -> Pool:
        return self._services.pool

    def place(self, path: str, name: str) -> str | None:
        """Return what stands in an address for a parameter."""
        if path == "/docs/static/{name}":
            return "start.js"
        if path.startswith("/dashboard/"):
            return dashboard.site().digest if name == "digest" else "parts/icons.js"
        if path == "/jobs/{job_id}/retry":
            return str(self._failed_job)
        if name == "order_id":
            return str(_ORDER + (1 if "purchase" in path else 2))
        return self._ids.get(name)

    def value(self, path: str, name: str) -> object:
        """Return what a field has to say to be right: what has to be new is new."""
        if name in {"name", "external_id"} or (path, name) == ("/commands", "task_id"):
            return f"new-{next(_numbers)}"
        if (path, name) == ("/commands", "cmd_id"):
            return new_command_id()
        if (path, name) == ("/session", "key"):
            return self.key
        return None

    async def renew(self) -> None:
        """Make whatever has been used up, and take note of how everything stands."""
        if self._renewed % _CLEARED_EVERY == 0:
            await self._begin_again()
        self._renewed += 1
        await workers.beat(self._pool, self._fleet.worker)
        await self._command_types()
        await self._pool.execute(_TRADING)
        host = f"idle-{next(_numbers)}"
        host_id = await self._pool.fetchval(
            "INSERT INTO hosts (name, channel) VALUES ($1, 'mqtt') RETURNING id", host
        )
        await self._fleet.block(host, "DEPLOY")
        await self._pool.execute(_ENROLMENT, _TOKEN)
        viewer, _ = await self._services.keys.make("used up", person="x", role="viewer", by=TESTER)
        self._ids |= {
            "host_id": str(host_id),
            "job_id": str(await self._submitted("DEPLOY")),
            "key_id": str(viewer.id),
        }
        self._lsn, self._seen = await self._position(), await self._look()

    async def _begin_again(self) -> None:
        await self._pool.execute(_CLEARING)
        await self._command_types()
        self._failed_job, execution_id = await self._failed()
        self._ids["execution_id"] = str(execution_id)

    async def _command_types(self) -> None:
        await self._pool.executemany(
            "INSERT INTO command_types (name, needs_approval) VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET needs_approval = excluded.needs_approval",
            _TYPES,
        )

    async def _failed(self) -> tuple[int, int]:
        """A job that has failed on its one host, which has printed two lines; and its execution."""
        job_id = await self._submitted("RESTART_SERVICE")
        (claimed,) = await self._fleet.claim(job_id)
        lines = [(claimed.execution_id, claimed.epoch, n, "stdout", f"line {n}") for n in (1, 2)]
        await logs.write(self._pool, lines)
        await self._fleet.say([claimed], "fail", cause="FAILED", exit_code=3)
        return job_id, claimed.execution_id

    async def _submitted(self, command_type: str) -> int:
        job = new_job(
            external_id=f"world-{next(_numbers)}",
            command_type=command_type,
            params=_PARAMS,
            selector=["db-1"],
            max_concurrency=None,
            requested_by="ann",
            params_max_bytes=1_000,
        )
        return (await jobs.submit(self._pool, job)).job_id

    async def changed(self) -> list[str]:
        """Name the tables in which anything differs from when this was last asked."""
        # Where nothing was written at all, nothing has to be compared.
        position = await self._position()
        if position == self._lsn:
            return []
        before, self._seen, self._lsn = self._seen, await self._look(), position
        return [name for name, found in self._seen.items() if before[name] != found]

    async def _position(self) -> object:
        return await self._pool.fetchval("SELECT pg_current_wal_insert_lsn()::text")

    async def _look(self) -> Snapshot:
        rows = await self._pool.fetch(self._counting)
        return {name: (number, digest) for name, number, digest in rows}


async def _counting(pool: Pool) -> str:
    """Write the query that counts the rows, and their versions, of all that is no mere evidence."""
    rows = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'onward'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    # Whoever inserts or changes a row leaves the number of their transaction in it.
    return " UNION ALL ".join(
        f"SELECT '{name}', count(*), coalesce(sum(xmin::text::bigint), 0) FROM onward.{name}"  # noqa: S608 - names of our own tables
        for (name,) in rows
        if name not in _EVIDENCE
    )
