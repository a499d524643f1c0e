"""What PostgreSQL could not store is refused in words, before anything is written."""

from __future__ import annotations

import json
import math
from collections import ChainMap, OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onward
from onward.commands import (
    create_command,
    event,
    get_command,
    get_timeline,
    mark_command_ack,
    mark_command_busy,
    mark_command_done,
    mark_command_failed,
    mark_command_invalid,
    mark_command_no_effect,
    mark_command_send_failed,
    mark_command_sent,
    mark_command_timeout,
    new_command_id,
    record_event,
)
from onward.core.verdicts import TransitionResult
from onward.errors import InvalidInput, UnknownLifecycle
from onward.store import inputs
from tests.conftest import settings_for
from tests.databases import copied
from tests.store.asking import one, row_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from onward.wiring import Onward

PAYLOAD_MAX = 10_000


@pytest.fixture(scope="module")
def database_url(server_url: str, template: str) -> Iterator[str]:
    """One database for all: nothing here may leave a trace, or each makes its own commands."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
async def opened(database_url: str) -> AsyncIterator[Onward]:
    """Open it once, with a limit that a test can exceed."""
    chosen = settings_for(database_url, payload_max_bytes=PAYLOAD_MAX, group_commit_ms=0)
    async with onward.open(chosen) as found:
        yield found


def nested(depth: int) -> dict[str, object]:
    value: object = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return {"top": value}


def endless() -> dict[str, object]:
    value: dict[str, object] = {}
    value["self"] = value
    return value


class Odd:
    """Something of a caller's own."""


BAD_IDS = [
    pytest.param(None, id="none"),
    pytest.param(0, id="zero"),
    pytest.param(1.5, id="float"),
    pytest.param(True, id="bool"),
    pytest.param(10**5_000, id="5001 digits"),
    pytest.param(b"0190a1b2-0000-7000-8000-000000000000", id="bytes of the text"),
    pytest.param(uuid4().bytes, id="bytes of the id"),
    pytest.param([], id="list"),
    pytest.param({}, id="dict"),
    pytest.param(Odd(), id="object"),
    pytest.param("", id="empty"),
    pytest.param(" ", id="space"),
    pytest.param("None", id="none as text"),
    pytest.param("0190a1b2-0000-7000-8000-00000000000", id="too short"),
    pytest.param("0190a1b2-0000-7000-8000-0000000000000", id="too long"),
    pytest.param("0190a1b2-0000-7000-8000-00000000000g", id="no hexadecimal digit"),
    pytest.param("0190a1b2-0000-7000-8000-000000000000\n", id="newline at the end"),
    pytest.param("0190a1b2-0000-7000-8000-000000000000\x00", id="nul at the end"),
    pytest.param(" 190a1b2-0000-7000-8000-000000000000", id="space for the first digit"),
    pytest.param("0190a1b2-0000-7000-8000-00000000000 ", id="space for the last digit"),
    pytest.param("\ud800190a1b2-0000-7000-8000-000000000000", id="surrogate"),
    pytest.param("\x1b[31m0a1-0000-7000-8000-000000000000", id="terminal escape"),
    pytest.param("0x90a1b2-0000-7000-8000-000000000000", id="prefix of a number"),
    pytest.param("+190a1b2-0000-7000-8000-000000000000", id="sign of a number"),
    pytest.param("0190_1b2-0000-7000-8000-000000000000", id="underscore in a number"),
    pytest.param("\uff10190a1b2-0000-7000-8000-000000000000", id="full-width digit"),
    pytest.param("\u0660190a1b2-0000-7000-8000-000000000000", id="arabic digit"),
    pytest.param("'; DROP TABLE commands; --", id="sql"),
    pytest.param("x" * 1_000_000, id="a million characters"),
]

BAD_NAMES = [
    pytest.param(None, id="none"),
    pytest.param(1.5, id="float"),
    pytest.param(True, id="bool"),
    pytest.param(b"pump", id="bytes"),
    pytest.param(["pump"], id="list"),
    pytest.param(Odd(), id="object"),
    pytest.param("a\x00b", id="nul"),
    pytest.param("a\ud800b", id="high surrogate"),
    pytest.param("a\udfffb", id="low surrogate"),
    pytest.param("a\nb", id="newline"),
    pytest.param("a\rb", id="carriage return"),
    pytest.param("a\tb", id="tab"),
    pytest.param("a\x1b[31mb", id="terminal escape"),
    pytest.param("a\x7fb", id="delete"),
    pytest.param("a\x85b", id="next line"),
    pytest.param("a\u2028b", id="line separator"),
    pytest.param("a\u202eb", id="bidi override"),
    pytest.param("a\u200bb", id="zero width"),
    pytest.param("a\ufeffb", id="byte order mark"),
    pytest.param("x" * 256, id="too long"),
    pytest.param("x" * 1_000_000, id="much too long"),
]

BAD_JSON = [
    pytest.param({"a": "x\x00y"}, id="nul"),
    pytest.param({"a": ["\ud800"]}, id="high surrogate"),
    pytest.param({"a": {"b": "\udc00"}}, id="low surrogate"),
    pytest.param({"a\x00": 1}, id="nul in a key"),
    pytest.param({"\udc00": 1}, id="surrogate in a key"),
    pytest.param({"a\n\x1b[31m": b"x"}, id="control characters in a key above what is bad"),
    pytest.param({"k" * 9_000: {"k" * 9_000: b"x"}}, id="long keys above what is bad"),
    pytest.param({1: 1}, id="number as a key"),
    pytest.param({None: 1}, id="none as a key"),
    pytest.param({b"a": 1}, id="bytes as a key"),
    pytest.param({("a",): 1}, id="tuple as a key"),
    pytest.param({"a": {2: 1}}, id="number as a key below"),
    pytest.param({"a": math.nan}, id="nan"),
    pytest.param({"a": [math.inf]}, id="infinity"),
    pytest.param({"a": -math.inf}, id="minus infinity"),
    pytest.param({"a": 2**64}, id="65 bits"),
    pytest.param({"a": -(2**64)}, id="minus 65 bits"),
    pytest.param({"a": 10**5_000}, id="5001 digits"),
    pytest.param({"a": b"x"}, id="bytes"),
    pytest.param({"a": bytearray(b"x")}, id="bytearray"),
    pytest.param({"a": {1, 2}}, id="set"),
    pytest.param({"a": frozenset()}, id="frozenset"),
    pytest.param({"a": 1j}, id="complex"),
    pytest.param({"a": Decimal("1.5")}, id="decimal"),
    pytest.param({"a": Decimal("sNaN")}, id="decimal nan"),
    pytest.param({"a": Fraction(1, 3)}, id="fraction"),
    pytest.param({"a": datetime.now(UTC)}, id="datetime"),
    pytest.param({"a": uuid4()}, id="uuid"),
    pytest.param({"a": Path("x")}, id="path"),
    pytest.param({"a": iter([1])}, id="iterator"),
    pytest.param({"a": range(3)}, id="range"),
    pytest.param({"a": Odd()}, id="object"),
    pytest.param({"a": Odd}, id="class"),
    pytest.param({"a": ...}, id="ellipsis"),
    pytest.param(nested(100), id="100 levels"),
    pytest.param(nested(100_000), id="100000 levels"),
    pytest.param(endless(), id="itself"),
    pytest.param({"a": "x" * PAYLOAD_MAX}, id="too large"),
    pytest.param({"a": "€" * (PAYLOAD_MAX // 3)}, id="too large in bytes"),
    pytest.param({"a": [0] * PAYLOAD_MAX}, id="too many"),
]

BAD_PARAMS = [
    pytest.param([], id="empty list"),
    pytest.param([1], id="list"),
    pytest.param("", id="empty text"),
    pytest.param("{}", id="text"),
    pytest.param(0, id="zero"),
    pytest.param(False, id="false"),
    pytest.param(b"{}", id="bytes"),
    pytest.param({1}, id="set"),
    pytest.param(Odd(), id="object"),
    *BAD_JSON,
]

BAD_SECONDS = [
    pytest.param(0, id="zero"),
    pytest.param(-1, id="negative"),
    pytest.param(math.nan, id="nan"),
    pytest.param(math.inf, id="infinity"),
    pytest.param(-math.inf, id="minus infinity"),
    pytest.param(True, id="bool"),
    pytest.param("10", id="text"),
    pytest.param(b"10", id="bytes"),
    pytest.param(Decimal(10), id="decimal"),
    pytest.param(1e10, id="too long"),
    pytest.param(10**400, id="401 digits"),
    pytest.param(10**5_000, id="5001 digits"),
    pytest.param([], id="list"),
]

BAD_DURATIONS = [
    pytest.param(-1, id="negative"),
    pytest.param(2**63, id="64 bits"),
    pytest.param(10**400, id="401 digits"),
    pytest.param(10**5_000, id="5001 digits"),
    pytest.param(True, id="true"),
    pytest.param(False, id="false"),
    pytest.param(1.0, id="float"),
    pytest.param(math.nan, id="nan"),
    pytest.param("10", id="text"),
    pytest.param(Decimal(10), id="decimal"),
    pytest.param([], id="list"),
]

BAD_LIFECYCLES: list[object] = [
    "",
    "nodes",
    "NODE",
    "node ",
    "node\x00",
    "\ud800",
    "\x1b[31m",
    None,
    1,
    [],
    {},
]


async def written() -> object:
    """Everything that a write would change."""
    return await one(
        "SELECT ((SELECT count(*) FROM commands), (SELECT count(*) FROM timeline))::text"
    )


async def refusal(call: Awaitable[object]) -> InvalidInput:
    """The one clear refusal of a call that writes nothing."""
    before = await written()
    with pytest.raises(InvalidInput) as caught:
        await call
    assert await written() == before
    return caught.value


def assert_clear(error: InvalidInput, field: str) -> None:
    """One line that names the field first, printable and short, whatever was handed in."""
    told = str(error)
    assert told.isprintable()
    assert told.startswith((field, f"a key of {field}"))
    assert len(told) < 400
    assert error.problem


TAKE_AN_ID: list[Callable[[Any], Awaitable[object]]] = [
    mark_command_sent,
    mark_command_ack,
    mark_command_done,
    mark_command_no_effect,
    mark_command_failed,
    mark_command_invalid,
    mark_command_busy,
    mark_command_timeout,
    mark_command_send_failed,
    get_command,
    get_timeline,
    lambda cmd_id: record_event(cmd_id, "send"),
    create_command,
]


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_a_malformed_id_is_refused_by_whoever_takes_one(bad):
    for function in TAKE_AN_ID:
        if (function, bad) != (create_command, None):  # which asks for a new one
            assert_clear(await refusal(function(bad)), "cmd_id")


@pytest.mark.parametrize("field", ["type", "node", "source", "task_id"])
@pytest.mark.parametrize("bad", BAD_NAMES)
async def test_a_name_must_be_printable_text_on_one_line(field, bad):
    if (field, bad) == ("task_id", None):
        return  # which means that there is none
    assert_clear(await refusal(create_command(**{field: bad})), field)


async def test_an_empty_task_is_refused():
    """The database has no use for it either: it would be one task for everybody."""
    assert_clear(await refusal(create_command(task_id="")), "task_id")


@pytest.mark.parametrize("bad", BAD_NAMES)
async def test_the_name_of_an_event_and_its_source_must_be_printable(bad):
    cmd_id = new_command_id()
    assert_clear(await refusal(record_event(cmd_id, bad)), "event")
    if bad is not None:
        assert_clear(await refusal(record_event(cmd_id, "ack", source=bad)), "source")


@pytest.mark.parametrize("bad", BAD_PARAMS)
async def test_params_must_be_an_object_that_json_and_postgresql_have(bad):
    assert_clear(await refusal(create_command(params=bad)), "params")


@pytest.mark.parametrize("bad", BAD_JSON)
async def test_what_comes_with_an_event_must_be_something_that_json_has(bad):
    cmd_id = new_command_id()
    assert_clear(await refusal(record_event(cmd_id, "done", result=bad)), "data")


@pytest.mark.parametrize("bad", BAD_SECONDS)
async def test_a_timeout_must_be_a_number_of_seconds_that_can_pass(bad):
    assert_clear(await refusal(create_command(timeout_s=bad)), "timeout_s")


@pytest.mark.parametrize("bad", BAD_DURATIONS)
async def test_a_duration_and_an_epoch_must_be_whole_numbers_of_63_bits(bad):
    cmd_id = new_command_id()
    assert_clear(await refusal(mark_command_done(cmd_id, bad)), "duration_ms")
    assert_clear(await refusal(mark_command_no_effect(cmd_id, bad)), "duration_ms")
    assert_clear(await refusal(record_event(cmd_id, "ack", epoch=bad)), "epoch")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"x", id="bytes"),
        pytest.param({1}, id="set"),
        pytest.param(math.nan, id="nan"),
        pytest.param("\x00", id="nul"),
        pytest.param("\ud800", id="surrogate"),
        pytest.param(10**5_000, id="5001 digits"),
    ],
)
async def test_codes_and_messages_must_be_storable(bad):
    cmd_id = new_command_id()
    for field in ("error_code", "error_message", "result_code"):
        refused = await refusal(mark_command_failed(cmd_id, **{field: bad}))
        assert_clear(refused, f"data.{field}")


@pytest.mark.parametrize("bad", BAD_LIFECYCLES, ids=ascii)
async def test_a_lifecycle_that_is_none_of_ours_is_refused_with_those_that_are(bad):
    error = await refusal(create_command(lifecycle=bad))
    assert_clear(error, "lifecycle")
    assert isinstance(error, UnknownLifecycle)
    assert "node" in error.problem
    assert "platform_lenient" in error.problem


async def test_the_limit_of_a_payload_is_in_bytes_and_exact():
    fits = {"a": "x" * (PAYLOAD_MAX - len('{"a": ""}'))}
    assert (await create_command(params=fits)).changed
    error = await refusal(create_command(params={"a": fits["a"] + "x"}))
    assert str(PAYLOAD_MAX + 1) in error.problem
    assert "ONWARD_PAYLOAD_MAX_BYTES" in error.problem


async def test_a_refusal_of_one_does_not_touch_those_beside_it(opened):
    good = [event(new_command_id(), "ack") for _ in range(2)]
    with pytest.raises(InvalidInput):
        event("nonsense", "ack")
    answers = await opened.commands.record_all(good)
    assert {answer.result for answer in answers} == {TransitionResult.UNKNOWN_COMMAND}


@pytest.mark.parametrize(
    "good",
    [
        pytest.param("x" * 255, id="255 characters"),
        pytest.param("😀" * 255, id="255 characters of 4 bytes"),
        pytest.param("насос-1", id="cyrillic"),
        pytest.param("../../etc/passwd", id="path"),
        pytest.param("'; DROP TABLE commands; --", id="sql"),
        pytest.param("{{7*7}} ${x} %s $(reboot)", id="template"),
    ],
)
async def test_a_name_that_only_looks_dangerous_stays_text(good):
    cmd_id = new_command_id()
    await create_command(cmd_id, type=good, node=good, task_id=good, source=good)
    row = await row_of(cmd_id)
    assert (row["type"], row["node"], row["task_id"]) == (good, good, good)
    assert [line["source"] for line in await get_timeline(cmd_id)] == [good]


@pytest.mark.parametrize(
    "extreme",
    [2**64 - 1, -(2**64) + 1, 2**63, 0, -0.0, 5e-324, 1.7976931348623157e308, 1e23, 0.1 + 0.2],
)
async def test_a_number_comes_back_as_the_number_that_it_was(extreme):
    cmd_id = new_command_id()
    await create_command(cmd_id, params={"n": extreme})
    assert as_stored((await row_of(cmd_id))["params"]) == as_stored({"n": extreme})


@pytest.mark.parametrize("seconds", [1e-9, 1, 366 * 86_400])
async def test_a_timeout_at_its_bounds_is_taken(seconds):
    assert (await create_command(timeout_s=seconds)).changed


async def test_a_duration_at_its_bound_is_taken():
    for duration in (0, 2**63 - 1):
        cmd_id = new_command_id()
        await create_command(cmd_id)
        assert (await mark_command_done(cmd_id, duration)).changed
        assert (await row_of(cmd_id))["duration_ms"] == duration


@pytest.mark.parametrize(
    "mapping",
    [
        MappingProxyType({"a": MappingProxyType({"b": 1})}),
        ChainMap({"a": {"b": 1}}),
        OrderedDict(a=OrderedDict(b=1)),
    ],
    ids=lambda mapping: type(mapping).__name__,
)
async def test_any_mapping_will_do_for_an_object(mapping):
    cmd_id = new_command_id()
    await create_command(cmd_id, params=mapping)
    assert (await row_of(cmd_id))["params"] == {"a": {"b": 1}}


# ---- anything at all ----

# Without NUL and halves of surrogate pairs, which PostgreSQL does not have.
storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
numbers = st.integers(-(2**64) + 1, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_able = st.recursive(
    st.none() | st.booleans() | numbers | storable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable, inner, max_size=4),
    max_leaves=12,
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(codec=None), max_size=20)
    | st.binary(max_size=10)
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.just(Odd()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=8), inner, max_size=3)
        | st.dictionaries(st.integers() | st.none() | st.booleans(), inner, max_size=2)
    ),
    max_leaves=6,
)
often = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def as_stored(value: Any) -> Any:
    """What JSON makes of a value; a number is its digits, so that 1e23 is 1 and 23 zeros."""
    match value:
        case dict():
            return {key: as_stored(item) for key, item in value.items()}
        case list() | tuple():
            return [as_stored(item) for item in value]
        case bool() | None | str():
            return value
        case _:
            return Decimal(repr(value))


@often
@given(params=st.dictionaries(storable, json_able, max_size=5))
async def test_any_json_object_comes_back_as_it_was(params):
    cmd_id = new_command_id()
    assert (await create_command(cmd_id, params=params)).changed
    assert as_stored((await row_of(cmd_id))["params"]) == as_stored(params)
    again = await create_command(cmd_id, params=params)
    assert again.result is TransitionResult.DUPLICATE


@often
@given(value=anything)
async def test_anything_at_all_comes_back_as_it_was_or_is_refused(value):
    cmd_id = new_command_id()
    try:
        await create_command(cmd_id, params={"value": value})
    except InvalidInput as error:
        assert_clear(error, "params")
        assert await get_command(cmd_id) is None
    else:
        assert as_stored((await row_of(cmd_id))["params"]) == as_stored({"value": value})


@often
@given(
    field=st.sampled_from(["cmd_id", "type", "node", "task_id", "lifecycle", "source"]),
    value=anything,
)
async def test_anything_at_all_as_any_argument_is_taken_or_refused(field, value):
    try:
        await create_command(**{field: value})
    except InvalidInput as error:
        assert_clear(error, field)


@often
@given(message=st.text(st.characters(codec=None), max_size=60))
async def test_any_text_of_an_error_comes_back_as_it_was_or_is_refused(message):
    cmd_id = new_command_id()
    await create_command(cmd_id)
    try:
        await mark_command_failed(cmd_id, error_message=message)
    except InvalidInput as error:
        assert_clear(error, "data.error_message")
        assert "\x00" in message or any("\ud800" <= character <= "\udfff" for character in message)
        assert (await row_of(cmd_id))["status"] == "QUEUED"
    else:
        assert (await row_of(cmd_id))["error_message"] == message
        assert (await get_timeline(cmd_id))[-1]["detail"] == {"error_message": message}


@often
@given(
    value=st.uuids(),
    spelled=st.sampled_from([str, lambda u: str(u).upper(), lambda u: u.hex, lambda u: u]),
)
def test_a_uuid_is_one_id_however_it_is_spelled(value, spelled):
    assert inputs.command_id(spelled(value)) == str(value)


@given(value=st.text(max_size=40))
def test_what_is_taken_for_an_id_is_one_in_canonical_form(value):
    try:
        taken = inputs.command_id(value)
    except InvalidInput as error:
        assert_clear(error, "cmd_id")
    else:
        assert taken == str(UUID(value))


@given(value=json_able)
def test_what_is_stored_is_the_json_of_what_was_given(value):
    stored = inputs.json_value("data", value, max_bytes=10**9)
    assert json.loads(stored) == value
