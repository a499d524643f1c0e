"""Finds the measurements by their names, and runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from onward.bench.result import Result
from onward.errors import InvalidInput

Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """A measurement: what it is about, and how to start it."""

    about: str
    run: Callable[[Progress], Iterator[Result]]


def _found(module: str, function: str) -> Callable[[Progress], Iterator[Result]]:
    """A measurement whose module is loaded when it is asked for."""

    def measure(progress: Progress) -> Iterator[Result]:
        found: Iterator[Result] = getattr(import_module(f"onward.bench.{module}"), function)(
            progress
        )
        return found

    return measure


BENCHES: Final[Mapping[str, Bench]] = MappingProxyType(
    {
        "store": Bench(
            "transitions in PostgreSQL, against pgbench doing the same", _found("store", "store")
        ),
        "large": Bench(
            "a transition among 5,000,000 commands, against one among 10,000",
            _found("large", "large"),
        ),
        "registry": Bench(
            "transitions in memory, against state-machine libraries",
            _found("registry", "registry"),
        ),
        "fleet": Bench(
            "20,000 executions over 2,000 hosts, against procrastinate, Celery and PgQueuer",
            _found("fleet", "end_to_end"),
        ),
        "celery": Bench(
            "the Celery engine, against plain Celery; and 3,000 slow hosts, against the ideal",
            _found("celery_engine", "celery_engine"),
        ),
        "webhook": Bench(
            "a job for 1,000 hosts over HTTP, against the bare INSERT of its rows",
            _found("webhook", "webhook"),
        ),
        "callbacks": Bench(
            "a platform's callbacks over HTTP, against a route that does nothing",
            _found("callbacks", "callbacks"),
        ),
        "ssh": Bench(
            "a command over SSH on 500 hosts, against Ansible and parallel-ssh",
            _found("ssh", "ssh"),
        ),
        "mqtt": Bench(
            "round trips to 1,000 nodes over MQTT, against mosquitto's own clients",
            _found("mqtt", "mqtt"),
        ),
        "agents": Bench(
            "a no-op through 1,000 connected agents, against a bare WebSocket echo",
            _found("agents", "agents"),
        ),
        "host-rule": Bench(
            "one command per host, 100,000 queued over 100 hosts, against no such rule",
            _found("host_rule", "host_rule"),
        ),
        "million": Bench(
            "a job of 1,000,000 executions, against one of 20,000", _found("million", "million")
        ),
        "matching": Bench(
            "deals of 8 matchers, against pgbench; and with 1,000,000 open orders, against 1,000",
            _found("matching", "matching"),
        ),
        "withdraw": Bench(
            "withdrawals over HTTP, against a bare route that does the same UPDATE and INSERTs",
            _found("withdraw", "withdraw"),
        ),
        "hot-account": Bench(
            "64 clients on one account, against row locks alone",
            _found("hot_account", "hot_account"),
        ),
        "cli": Bench(
            "`onward --help`; and `onward jobs` among 100,000 jobs, against 100",
            _found("command_line", "command_line"),
        ),
        "dashboard": Bench(
            "the page of a job with 10,000 hosts in Chromium, coming up and keeping up",
            _found("dashboard", "dashboard"),
        ),
    }
)


def run(names: Sequence[str], progress: Progress) -> Iterator[Result]:
    """Run the measurements of these names, all of them if none is named."""
    chosen = list(dict.fromkeys(names)) or list(BENCHES)
    for name in chosen:
        if name not in BENCHES:
            raise InvalidInput("bench", f"{name!r} is not one of {', '.join(BENCHES)}")
    for name in chosen:
        yield from BENCHES[name].run(progress)
