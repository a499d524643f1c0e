"""Hosts by the thousand: inventories that people already have, imported whole or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final

from fastapi import Query, Request
from pydantic import BaseModel, Field

from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Doing, Services, Serving
from onward.errors import InvalidInput
from onward.fleet import inventory
from onward.fleet.hosts import Channel
from onward.fleet.inventory import MISTAKES_SHOWN, Form, Inventory
from onward.store import hosts as store

_NAMED: Final = 100
_PARAMETERS: Final = ("format", "channel", "dry_run")
_FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "text/csv": "csv",
        "application/json": "json",
        "application/yaml": "yaml",
        "application/x-yaml": "yaml",
        "text/yaml": "yaml",
        "text/x-yaml": "yaml",
    }
)
_TYPE = re.compile(r"\s*([a-z0-9.+-]+/[a-z0-9.+-]+)\s*(?:;(.*))?", re.IGNORECASE).fullmatch
_OTHER_CHARSET = re.compile(r"charset\s*=\s*(?!\"?utf-?8\b)", re.IGNORECASE).search

# One inventory at a time: reading a large one takes seconds of a processor and a good deal of
# memory, and meanwhile the loop has to answer others.
_READING: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inventory")

inventories = router("/hosts", "hosts")

_EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "text/csv": "name,address,channel,role\nweb1,10.0.0.1,simulated,web\n",
        "application/json": '[{"name": "web1", "address": "10.0.0.1", "labels": {"role": "web"}}]',
        "application/yaml": "web:\n  hosts:\n    web[01:20]:\n  vars: {zone: eu}\n",
        "text/plain": "[web]\nweb[01:20] rack=7\n[web:vars]\nzone=eu\n",
    }
)


class ImportAnswer(BaseModel):
    """What became of the hosts of an inventory, or would become of them."""

    dry_run: bool
    created: int
    changed: int
    unchanged: int
    created_names: list[str] | None = Field(
        default=None, description=f"The first {_NAMED} of them; for a dry run."
    )
    changed_names: list[str] | None = Field(
        default=None, description=f"The first {_NAMED} of them; for a dry run."
    )


def _described() -> dict[str, Any]:
    """Return what the route says of itself: a body that is no JSON cannot be read off its type."""
    said = needs(
        Permission.MANAGE,
        responses={415: problem_response("It cannot be told what form the inventory has")},
    )
    said["openapi_extra"]["requestBody"] = {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string"}, "example": example}
            for kind, example in _EXAMPLES.items()
        },
    }
    return said


@inventories.post("/import", **_described())
async def import_hosts(
    request: Request,
    by: Doing,
    services: Serving,
    form: Annotated[
        Form | None,
        Query(alias="format", description="What it is, whatever the content type says."),
    ] = None,
    channel: Annotated[Channel, Query(description="For hosts that name none.")] = "simulated",
    dry_run: Annotated[  # noqa: FBT002 - a query parameter
        bool, Query(description="Say what would be done, and do nothing.")
    ] = False,
) -> ImportAnswer:
    """Import an inventory: CSV, JSON, Ansible's INI or YAML, or OpenSSH's configuration.

    Hosts are known by their names: who is not there is made, who differs is changed, and who is
    not named is left alone. A host that is disabled stays so. If anything is wrong with it,
    nothing is imported, and `errors` lists every mistake with its line.
    """
    _refuse_other_parameters(request)
    _refuse_encoded(request)
    chosen = form or _form_of(request)
    reading = partial(inventory.read, await request.body(), chosen, channel=channel)
    found = await asyncio.get_running_loop().run_in_executor(_READING, reading)
    if found.mistakes:
        raise _mistaken(found)
    if dry_run:
        return await _compared(services, found)
    imported = await store.import_all(services.pool, found.hosts, by=by)
    return ImportAnswer(dry_run=False, **imported._asdict())


async def _compared(services: Services, found: Inventory) -> ImportAnswer:
    compared = await store.compare_all(services.pool, found.hosts, named=_NAMED)
    return ImportAnswer(
        dry_run=True,
        **compared.would._asdict(),
        created_names=compared.created_names,
        changed_names=compared.changed_names,
    )


def _refuse_other_parameters(request: Request) -> None:
    # `?dryrun=true` would otherwise be an import in earnest.
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in _PARAMETERS or given.count(name) > 1:
            raise InvalidInput(
                "query", f"takes each of {', '.join(_PARAMETERS)} once, and nothing else"
            )


def _refuse_encoded(request: Request) -> None:
    if any(value.lower() != "identity" for value in request.headers.getlist("content-encoding")):
        raise _unsupported("Send the body as it is, without Content-Encoding.")


def _form_of(request: Request) -> Form:
    """Return the form that the content type names."""
    given = request.headers.getlist("content-type")
    found = _TYPE(given[0]) if len(given) == 1 else None
    if found is None or found[1].lower() not in _FORMS:
        raise _unsupported(
            "Say what it is: `Content-Type: text/csv`, `application/json` or `application/yaml`, "
            "or `?format=` csv, json, ini, yaml or ssh_config."
        )
    if _OTHER_CHARSET(found[2] or ""):
        raise _unsupported("Send the inventory in UTF-8.")
    return _FORMS[found[1].lower()]


def _unsupported(detail: str) -> Problem:
    return Problem(
        415,
        "type-unsupported",
        "The form of the inventory is not known",
        detail,
        headers={"Accept": ", ".join(_FORMS), "Accept-Encoding": "identity"},
    )


def _mistaken(found: Inventory) -> Problem:
    count = len(found.mistakes) + found.more
    told = f" The first {MISTAKES_SHOWN} of at least {count:,} are listed." if found.more else ""
    return Problem(
        422,
        "inventory-mistaken",
        "The inventory cannot be imported",
        f"Nothing was imported. See `errors` for what is wrong in which line.{told}",
        extra={
            "errors": [
                {"in": "body", "pointer": "", "line": mistake.line, "detail": mistake.text}
                for mistake in found.mistakes
            ]
        },
    )
