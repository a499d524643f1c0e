"""Secrets appear in no log, argument, error, timeline, metric or answer: planted, used, looked for.

Everything that anybody could read is searched for every secret, in whatever form it may be there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.channels.mqtt.mosquitto import NEEDED, Mosquitto, installed
from tests.cli.running import folder_for_servers, until
from tests.databases import copied
from tests.proof_table import Tried
from tests.security.canaries import Canaries, Onlooker, dumped
from tests.security.household import Evidence, household
from tests.security.usage import use


@pytest.fixture(scope="module")
def evidence(server_url: str, template: str) -> Iterator[Evidence]:
    """What there is to read when every secret has been used."""
    if not installed:
        pytest.skip(NEEDED)
    with (
        copied(server_url, template) as url,
        folder_for_servers() as folder,
        folder_for_servers() as at_broker,
    ):
        found = Evidence(Canaries(), folder, url)
        password = found.canaries.make("password of the broker")
        _use(found, Mosquitto(at_broker, f"onward:{password}"), at_broker / "log")
        yield found


def _use(found: Evidence, broker: Mosquitto, log: Path) -> None:
    onlooker = Onlooker()
    found.arguments = onlooker.seen
    try:
        with onlooker.looking(), household(found, broker.port) as there:
            # Only now, so that there was something to complain of.
            asyncio.run(broker.start())
            # The service and the node.
            until(lambda: log.read_text().count("New client connected") >= 2)
            use(there)
    except BaseException:
        for path in found.logs.values():
            print(path.read_text("utf-8", "replace"))
        raise
    finally:
        asyncio.run(broker.stop())


def test_every_secret_was_used(evidence: Evidence):
    """Otherwise it would be no wonder that none is found."""
    printed, values = evidence.printed, evidence.canaries.values
    for host in ("box", "server"):
        digest = hashlib.sha256(values[f"token on {host}"].encode()).hexdigest()
        assert digest in printed[host]
        assert '"user": "ann"' in printed[host]
        assert printed[host].count("***") == 3
    for host in ("sim", "node"):
        assert '"token": "***"' in printed[host]
        assert '"user": "ann"' in printed[host]
    heard = "".join(evidence.heard)
    assert values["header of the platform"] in heard
    assert values["token on parrot"] in heard
    assert values["token on magpie"] in heard
    seen = "\n".join(evidence.arguments)
    assert "onward agent" in seen
    assert "sha256sum" in seen
    assert "broker_away" in evidence.logs["service"].read_text("utf-8")
    assert len(evidence.answers) > 100


def test_no_log_has_a_secret(evidence: Evidence, tried: Tried):
    lines = [
        (name, line)
        for name, path in evidence.logs.items()
        for line in path.read_text("utf-8", "replace").splitlines()
    ]
    assert not [each for each in lines if evidence.canaries.found(each[1])]
    tried("lines of logs searched for secrets", len(lines), "none found")


def test_no_process_has_a_secret_among_its_arguments(evidence: Evidence, tried: Tried):
    assert not [each for each in evidence.arguments if evidence.canaries.found(each)]
    tried("command lines searched for secrets", len(evidence.arguments), "none found")


def test_no_answer_has_a_secret(evidence: Evidence, tried: Tried):
    assert not [
        (where, found)
        for where, told in evidence.answers
        if (found := evidence.canaries.found(told))
    ]
    tried("answers of the API searched for secrets", len(evidence.answers), "none found")


async def test_no_row_has_a_secret_but_where_it_is_needed(evidence: Evidence, tried: Tried):
    tables = await dumped(evidence.database_url)
    for name in ("jobs", "audit"):
        assert tables[name]
    assert not [
        (name, row, found)
        for name, rows in tables.items()
        for row in rows
        if (found := evidence.canaries.found(row))
    ]
    tried("rows searched for secrets", sum(map(len, tables.values())), "none found")


def test_the_agent_keeps_its_own_key_and_what_a_program_has_printed_to_itself(evidence: Evidence):
    files = [path for path in evidence.agent.rglob("*") if path.is_file()]
    assert files
    found = {
        name
        for path in files
        for name in evidence.canaries.found(path.read_bytes().decode("latin-1"))
    }
    assert found <= {"key of the agent", "token on box"}
    assert evidence.agent.stat().st_mode & 0o077 == 0
