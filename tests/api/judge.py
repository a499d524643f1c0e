"""Looks at the answers to requests that were made to be wrong, whatever the route."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

import pytest
from fastapi import FastAPI

from onward.api.services import Services
from tests.api.asking_routes import JSON, LINES, Answer, Draft, Operation, ask, operations
from tests.api.catalogue import CANARY
from tests.api.test_foundation import MEMBERS
from tests.api.world import TRADER, World
from tests.present import TESTER
from tests.proof_table import Tried

K = TypeVar("K")
T = TypeVar("T")

TAKEN: Final = frozenset({200, 201, 202, 204})
_SHARE: Final = 4  # one of so many cases is thrown at what is like something before
_COOKIE: Final = (b"cookie", f"session={CANARY}".encode())
# A service without a worker is not ready, and says so.
_NOT_READY: Final = ("/health/ready", "not-ready")
# Whoever imports an inventory is shown the words that are wrong in it.
_SHOWS_MISTAKES: Final = "/hosts/import"


@dataclass
class Judge:
    """Sends requests with the key of an admin, and looks at every answer."""

    app: FastAPI
    services: Services
    world: World
    key: str
    proof: bool
    asked: int = 0
    met: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    async def made(cls, app: FastAPI, services: Services, *, proof: bool) -> Judge:
        """Make one with a world of its own, on a database that is nobody else's."""
        _, key = await services.keys.make("judge", person=TRADER, role="admin", by=TESTER)
        return cls(app, services, await World.made(services), key, proof)

    async def key_of(self, role: str) -> tuple[int, str]:
        """Make another key of the person who has what the world holds; returns its id, too."""
        made, key = await self.services.keys.make(role, person=TRADER, role=role, by=TESTER)
        await self.world.changed()
        return made.id, key

    def operations(self) -> list[Operation]:
        """Every route there is."""
        return operations(self.app)

    def ways(self) -> Iterator[tuple[Operation, str | None]]:
        """Every route there is, with each kind of body that it takes."""
        for operation in self.operations():
            for kind in operation.kinds:
                yield operation, kind

    def fresh(self, operation: Operation, kind: str | None = None) -> Draft:
        """A request that is right at this moment; with any kind of body, if none is named."""
        return operation.draft(self.world, kind or operation.kinds[0])

    def some(self, cases: Mapping[K, T], *what: object) -> Mapping[K, T]:
        """All cases for what is met for the first time; for its like, each time some of them."""
        key = json.dumps(what, default=sorted, sort_keys=True)
        self.met[key] += 1
        if self.proof or self.met[key] == 1:
            return cases
        return dict(islice(cases.items(), self.met[key] % _SHARE, None, _SHARE))

    async def of(
        self,
        draft: Draft,
        case: str,
        *,
        refused: bool = False,
        statuses: AbstractSet[int] | bool = False,
    ) -> Answer:
        """Send one; it has to be refused, or answered with one of these statuses, if so said."""
        self.asked += 1
        key = f"Bearer {self.key}".encode()
        answer = await ask(self.app, draft, (b"authorization", key), _COOKIE)
        told = self._found(draft.operation, answer)
        if isinstance(statuses, AbstractSet) and answer.status not in statuses:
            told.append(f"is not one of {sorted(statuses)}")
        if refused and answer.status < 400:
            told.append("is not refused")
        changed = await self.world.changed()
        if changed:
            await self.world.renew()
            if answer.status >= 400:
                told.append(f"has written to {', '.join(changed)}")
        self.wrong += [
            f"{draft.operation} {draft.kind or ''} [{case}]: {answer.status} {each}: "
            f"{answer.body[:300]!r}"
            for each in told
        ]
        return answer

    def _found(self, operation: Operation, answer: Answer) -> list[str]:
        if answer.says(self.key):
            return ["shows the key"]
        if answer.status < 400:
            return [] if _is_whole(answer) else ["is not what it says it is"]
        if answer.kind != "application/problem+json":
            return ["is no problem"]
        problem = answer.json()
        said = (answer.status, answer.headers[b"x-request-id"].decode())
        if not problem.keys() >= MEMBERS or said != (problem["status"], problem["request_id"]):
            return ["is a problem without its members"]
        if answer.status >= 500 and (operation.route.path, problem["code"]) != _NOT_READY:
            return ["is our mistake"]
        told = answer.says(CANARY) and operation.route.path != _SHOWS_MISTAKES
        return ["shows a secret"] if told else []

    def sum_up(self, tried: Tried, name: str) -> None:
        """Say how many there were, and that none was wrong."""
        tried(f"{name} on every route", self.asked, f"{len(self.wrong)} violations")
        if self.wrong:
            shown = "\n".join(self.wrong[:40])
            pytest.fail(f"{len(self.wrong)} of {self.asked} requests:\n{shown}", pytrace=False)


def _is_whole(answer: Answer) -> bool:
    if answer.status == 204:
        return not answer.body
    if answer.kind not in {JSON, LINES}:
        return True
    try:
        for part in answer.body.splitlines() if answer.kind == LINES else [answer.body]:
            json.loads(part)
    except ValueError:
        return False
    return True
