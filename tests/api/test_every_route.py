"""What holds for every route there is, and for those that are added later.

Requests are made from the application's own description. Whatever is wrong with one of them, the
answer is a problem that says so, nobody's secret is in it, and nothing has been written.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import replace

import pytest

from onward.api import paging
from onward.api.app import create_app
from onward.api.routing import DirectRoute
from onward.service.serving import services as services_for
from onward.settings import Settings
from onward.wiring import Onward
from tests.api import catalogue
from tests.api.asking_routes import JSON, LINES, Schema
from tests.api.catalogue import CANARY
from tests.api.judge import TAKEN, Judge
from tests.proof_table import Tried

CURSORS = frozenset({"cursor", "after"})  # what lists call the place from which they go on


@pytest.fixture(scope="module")
async def only_judge(shared: Onward, *, proof: bool) -> Judge:
    """Somebody who may do everything, and looks at what comes of it."""
    services = services_for(shared)
    return await Judge.made(create_app(services), services, proof=proof)


@pytest.fixture
async def judge(only_judge: Judge) -> Judge:
    """The same one, to whom everything is new."""
    await only_judge.world.renew()
    return replace(only_judge, asked=0, met=Counter(), wrong=[])


async def test_the_examples_of_every_route_are_taken(judge: Judge, tried: Tried):
    """So that whatever is refused below is refused for what was changed, and for nothing else."""
    for operation, kind in judge.ways():
        await judge.world.renew()
        await judge.of(judge.fresh(operation, kind), "as it is", statuses=TAKEN)
    judge.sum_up(tried, "examples")


# Addresses


async def test_no_route_stumbles_over_what_stands_in_its_path(judge: Judge, tried: Tried):
    for operation in judge.operations():
        for parameter in operation.named("path"):
            number = operation.types(parameter["schema"]) == frozenset({"integer"})
            cases = {**catalogue.ADDRESSES, "empty": b""}
            for case, said in judge.some(cases, parameter).items():
                await judge.of(
                    judge.fresh(operation).in_path(parameter["name"], said),
                    f"{parameter['name']}: {case}",
                    refused=number or case in catalogue.NO_ADDRESS,
                )
    judge.sum_up(tried, "strange paths")


async def test_every_route_takes_what_it_says_may_stand_in_its_query(judge: Judge, tried: Tried):
    for operation in judge.operations():
        for parameter in operation.named("query"):
            schema = operation.plain(parameter["schema"])
            plain = operation.plain(schema.get("items", schema))
            if "enum" in plain or plain["type"] in {"integer", "boolean"}:
                value = operation.value(judge.world, "", plain)
                said = "true" if plain.get("type") == "boolean" else str(value)
                draft = judge.fresh(operation).in_query(parameter["name"], said.encode())
                await judge.of(draft, parameter["name"], statuses=TAKEN)
    judge.sum_up(tried, "filters")


async def test_no_route_stumbles_over_what_stands_in_its_query(judge: Judge, tried: Tried):
    often = {"empty": [b""], "twice": [b"1", b"2"], "often": [b"1"] * 500}
    for operation in judge.operations():
        for parameter in operation.named("query"):
            name, plain = parameter["name"], operation.plain(parameter["schema"])
            for case, said in judge.some(catalogue.ADDRESSES, parameter).items():
                await judge.of(
                    judge.fresh(operation).in_query(name, said),
                    f"{name}: {case}",
                    refused=case in catalogue.NO_ADDRESS or not may_mean(plain, case),
                )
            for case, values in often.items():
                await judge.of(judge.fresh(operation).in_query(name, *values), f"{name}: {case}")
        draft = judge.fresh(operation).in_query("unheard-of", CANARY.encode())
        # What other systems add to an address that they were given is theirs.
        strict = not isinstance(operation.route, DirectRoute)
        await judge.of(draft, "another", statuses=strict and {422})
    judge.sum_up(tried, "strange queries")


def may_mean(schema: Schema, case: str) -> bool:
    """Say whether something in an address may be a value of what a parameter takes."""
    if case in catalogue.LARGE:
        return int(schema.get("maximum", 2**63)) > 2**31
    if case == "-1" and schema.get("minimum", 0) < 0:
        return True
    closed = "enum" in schema or schema.get("type") in {"integer", "boolean"}
    return not closed or case in catalogue.CLEAR


# Lists


async def test_no_list_goes_on_from_a_place_that_it_has_not_named(
    judge: Judge, tried: Tried, monkeypatch: pytest.MonkeyPatch
):
    """Neither from one of another list, nor from one whose checksum is right and the rest not."""
    asked_for: list[str] = []
    decode = paging.decode

    def noting(kind: str, cursor: str | None) -> object:
        asked_for.append(kind)
        return decode(kind, cursor)

    monkeypatch.setattr(paging, "decode", noting)
    lists = 0
    for operation in judge.operations():
        for parameter in operation.named("query"):
            name = parameter["name"]
            if name not in CURSORS:
                continue
            lists += 1
            await judge.of(judge.fresh(operation).in_query(name, b"x"), "none", statuses={422})
            kind = asked_for[-1]
            for case, position in catalogue.POSITIONS.items():
                draft = judge.fresh(operation).in_query(name, cursor_of(kind, position))
                await judge.of(draft, f"forged: {case}")
            for case, cursor in catalogue.tampered(cursor_of(kind, b"[1]")).items():
                if not cursor and name == "after":
                    continue  # A stream that is asked for nothing in particular begins now.
                draft = judge.fresh(operation).in_query(name, cursor)
                await judge.of(draft, f"tampered: {case}", statuses={422})
            for other in ("jobs", "hosts", "changes", "logs of execution 1"):
                cursor = cursor_of(f"{other}, another", b"[1]")
                draft = judge.fresh(operation).in_query(name, cursor)
                await judge.of(draft, f"of {other}", statuses={422})
    assert lists > 10
    judge.sum_up(tried, "strange cursors")


def cursor_of(kind: str, position: bytes) -> bytes:
    """Forge a cursor: its checksum is no secret."""
    whole = paging._check(kind, position) + position
    return base64.urlsafe_b64encode(whole).rstrip(b"=")


# Bodies


async def test_no_route_stumbles_over_a_field_of_its_body(judge: Judge, tried: Tried):
    for operation, kind in judge.ways():
        strict, whole = operation.takes_json and kind == JSON, kind != LINES
        for at, types, required in operation.fields_of(judge.fresh(operation, kind)):
            # What is no JSON is found before anybody looks at fields.
            for case, text in judge.some(catalogue.NO_JSON, str(operation), kind).items():
                draft = judge.fresh(operation, kind).with_field(at, text)
                await judge.of(draft, f"{at}: {case}", refused=strict, statuses=strict and {400})
            for case, text in catalogue.HALVES.items():
                draft = judge.fresh(operation, kind).with_field(at, text)
                await judge.of(draft, f"{at}: {case}", refused=whole, statuses=strict and {422})
            for case, value in judge.some(catalogue.VALUES, at[-1], types, whole).items():
                draft = judge.fresh(operation, kind).with_field(at, value.text)
                # A line that is wrong is told as that line's problem, in an answer that is none.
                unfit = whole and types is not None and value.kind not in types
                await judge.of(draft, f"{at}: {case}", refused=unfit)
            draft = judge.fresh(operation, kind).without_field(at)
            await judge.of(draft, f"{at}: missing", refused=whole and required)
    judge.sum_up(tried, "strange fields")


async def test_no_route_stumbles_over_a_word_of_a_body_that_is_plain_text(
    judge: Judge, tried: Tried
):
    values = {case: value.text for case, value in catalogue.VALUES.items()}
    cases = {**catalogue.NO_JSON, **catalogue.HALVES, **values}
    for operation, kind in judge.ways():
        text = judge.fresh(operation, kind).text or b""
        for word in sorted(set(re.findall(rb"\w+", text))):
            for case, said in judge.some(cases, kind).items():
                changed = text.replace(word, said.strip(b'"'), 1)
                draft = judge.fresh(operation, kind).with_body(changed)
                await judge.of(draft, f"{word!r}: {case}")
    judge.sum_up(tried, "strange words")


async def test_no_route_stumbles_over_a_body_as_a_whole(judge: Judge, tried: Tried):
    for operation, kind in judge.ways():
        met = (str(operation), kind) if kind else None
        for case, (body, statuses) in judge.some(catalogue.BODIES, met).items():
            may_be = not operation.must_have_body and case in {"empty", "null"}
            strict = operation.takes_json and kind == JSON and not may_be
            draft = judge.fresh(operation, kind).with_body(body)
            await judge.of(draft, case, statuses=strict and statuses)
    judge.sum_up(tried, "strange bodies")


async def test_no_route_reads_more_than_it_may(judge: Judge, tried: Tried):
    """Whether the length was announced, or lied about, or left unsaid."""
    limit = Settings().body_max_bytes
    half = b" " * (limit // 2)
    for operation, kind in judge.ways():
        too_large = {413} if operation.contents else False
        draft = judge.fresh(operation, kind).with_body(half, half, b" ")
        await judge.of(draft, "too large", statuses=too_large)
        await judge.of(
            draft.with_headers(b"content-length", b"10"), "too large, and lied", statuses=too_large
        )
        announced = judge.fresh(operation, kind).with_headers(
            b"content-length", b"%d" % (limit + 1)
        )
        await judge.of(announced, "announced", statuses=too_large)
        for length in judge.some(dict(enumerate(catalogue.LENGTHS)), kind).values():
            draft = judge.fresh(operation, kind).with_headers(b"content-length", length)
            await judge.of(draft, f"of length {length!r}")
    judge.sum_up(tried, "lengths of bodies")


# Headers


async def test_no_route_takes_a_body_that_it_may_misread(judge: Judge, tried: Tried):
    for operation, kind in judge.ways():
        if not operation.contents:
            continue
        for case, said in catalogue.CONTENT_TYPES.items():
            draft = judge.fresh(operation, kind).with_headers(b"content-type", *said)
            await judge.of(draft, f"type: {case}", statuses=operation.takes_json and {415})
        for encoding in catalogue.ENCODINGS:
            draft = judge.fresh(operation, kind).with_headers(b"content-encoding", encoding)
            await judge.of(draft, f"encoding: {encoding!r}", statuses={415})
    judge.sum_up(tried, "misleading bodies")


async def test_no_route_changes_a_version_that_nobody_has_named(judge: Judge, tried: Tried):
    for operation in judge.operations():
        named = [each["name"] for each in operation.named("header") if each.get("required")]
        guarded = {400, 412, 428} if "If-Match" in named else False
        cases = {"missing": (), **catalogue.IF_MATCH}
        for case, said in judge.some(cases, str(operation) if guarded else None).items():
            draft = judge.fresh(operation).with_headers(b"if-match", *said)
            answer = await judge.of(draft, f"If-Match: {case}", statuses=guarded)
            if answer.status == 428 and not guarded:
                judge.wrong.append(f"{operation} asks for If-Match, and does not say so beforehand")
    judge.sum_up(tried, "strange preconditions")


async def test_no_route_stumbles_over_other_headers(judge: Judge, tried: Tried):
    for operation in judge.operations():
        names = {each["name"].lower().encode() for each in operation.named("header")}
        for name in sorted(names | {b"if-none-match"} - {b"if-match"}):
            for case, said in judge.some(catalogue.IF_MATCH, name.decode()).items():
                draft = judge.fresh(operation).with_headers(name, *said)
                await judge.of(draft, f"{name!r}: {case}")
        ids = dict(enumerate(catalogue.REQUEST_IDS))
        for given in judge.some(ids, "request id").values():
            draft = judge.fresh(operation).with_headers(b"x-request-id", given)
            answer = await judge.of(draft, f"request id {given[:20]!r}")
            assert answer.headers[b"x-request-id"] != given
        for case, headers in catalogue.SIGNATURES.items() if operation.route.signed else ():
            draft = judge.fresh(operation)
            draft = replace(draft, headers=(*draft.headers, *headers))
            await judge.of(draft, f"signature: {case}", statuses={401})
    judge.sum_up(tried, "strange headers")
