"""The two documents that asked for guarded commands, word for word.

What they allow is typed here from their text and not read from the lifecycle, so that a slip in the
table cannot hide behind itself.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import count, product
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import onward
from onward.commands import (
    create_command,
    execute,
    fetch,
    get_command,
    get_timeline,
    handle_callback,
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
)
from onward.core.verdicts import TransitionResult
from tests.conftest import settings_for
from tests.databases import copied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from onward.store.transitions import Answer
    from onward.wiring import Onward


@pytest.fixture(scope="module")
def database_url(server_url: str, template: str) -> Iterator[str]:
    """One database for all: every test makes its own commands, and looks at no others."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
async def opened(database_url: str) -> AsyncIterator[Onward]:
    """Open it once."""
    async with onward.open(settings_for(database_url)) as found:
        yield found


NODE_STATUSES = (
    "QUEUED",
    "SENT",
    "ACK",
    "SEND_FAILED",
    "DONE",
    "NO_EFFECT",
    "ERROR",
    "INVALID",
    "BUSY",
    "TIMEOUT",
)


async def sent_once(cmd_id: str) -> Answer:
    return await mark_command_sent(cmd_id, allow_resend=False)


# The guard of each function, as the document's WHERE says it, and the status that it writes.
GUARDED: list[tuple[Callable[[str], Awaitable[Answer]], tuple[str, ...], str]] = [
    (mark_command_sent, ("QUEUED", "SEND_FAILED"), "SENT"),
    (sent_once, ("QUEUED",), "SENT"),
    (mark_command_ack, ("QUEUED", "SENT"), "ACK"),
    (mark_command_done, ("QUEUED", "SENT", "ACK"), "DONE"),
    (mark_command_no_effect, ("QUEUED", "SENT", "ACK"), "NO_EFFECT"),
    (mark_command_failed, ("QUEUED", "SENT", "ACK"), "ERROR"),
    (mark_command_invalid, ("QUEUED", "SENT", "ACK"), "INVALID"),
    (mark_command_busy, ("QUEUED", "SENT", "ACK"), "BUSY"),
    (mark_command_timeout, ("QUEUED", "SENT", "ACK"), "TIMEOUT"),
    (mark_command_send_failed, ("QUEUED",), "SEND_FAILED"),
]


async def command_in(status: str, **made: object) -> str:
    """Make a command and put it into a status by hand, as the document's own test does."""
    cmd_id = new_command_id()
    created = await create_command(cmd_id, **made)  # type: ignore[arg-type]  # the caller's own
    assert created.result is TransitionResult.OK
    await execute("UPDATE commands SET status=$2 WHERE cmd_id=$1", cmd_id, status)
    return cmd_id


async def test_the_example_of_correct_use_runs_as_written():
    cmd_id = new_command_id()
    await create_command(cmd_id)

    await mark_command_sent(cmd_id)
    await mark_command_ack(cmd_id)
    await mark_command_done(cmd_id, duration_ms=1000)

    row = await get_command(cmd_id)
    assert row is not None
    assert (row["status"], row["duration_ms"]) == ("DONE", 1000)


async def test_both_ways_of_sending_run_as_written():
    cmd_id = new_command_id()
    await create_command(cmd_id)
    await mark_command_send_failed(cmd_id, "no route to the node")

    refused = await mark_command_sent(cmd_id, allow_resend=False)
    assert (refused.changed, await status_of(cmd_id)) == (False, "SEND_FAILED")

    await mark_command_sent(cmd_id)
    assert await status_of(cmd_id) == "SENT"


async def test_the_race_of_the_document_leaves_ack_alone():
    cmd_id = new_command_id()
    await create_command(cmd_id)

    await execute("UPDATE commands SET status='ACK' WHERE cmd_id=$1", cmd_id)

    await mark_command_sent(cmd_id)

    rows = await fetch("SELECT status FROM commands WHERE cmd_id=$1", cmd_id)
    assert rows[0]["status"] == "ACK"


@pytest.mark.parametrize(
    ("function", "sources", "target"), GUARDED, ids=[guarded[0].__name__ for guarded in GUARDED]
)
async def test_a_guarded_function_moves_exactly_what_its_where_allows(function, sources, target):
    for status in NODE_STATUSES:
        cmd_id = await command_in(status)
        answer = await function(cmd_id)

        row = await get_command(cmd_id)
        assert row is not None
        found = (answer.changed, answer.result is TransitionResult.OK, row["status"])
        allowed = status in sources
        assert found == (allowed, allowed, target if allowed else status), status
        assert answer.record is not None
        assert (answer.record.status, answer.record.version) == (row["status"], row["version"])


async def test_a_guarded_function_leaves_every_other_command_alone():
    bystander = await command_in("QUEUED")
    before = await get_command(bystander)
    for function, _, _ in GUARDED:
        await function(await command_in("QUEUED"))
    assert await get_command(bystander) == before


@pytest.mark.parametrize("function", [guarded[0] for guarded in GUARDED])
async def test_a_command_that_nobody_made_is_a_verdict(function):
    answer = await function(new_command_id())
    assert answer == (None, TransitionResult.UNKNOWN_COMMAND, False)


COLUMNS = ("status", "duration_ms", "result_code", "error_code", "error_message")


@pytest.mark.parametrize(
    ("function", "words", "stored"),
    [
        (
            mark_command_done,
            {"duration_ms": 1000, "result_code": 7},
            ("DONE", 1000, "7", None, None),
        ),
        (mark_command_no_effect, {"duration_ms": 0}, ("NO_EFFECT", 0, None, None, None)),
        *(
            (
                function,
                {"error_code": "E12", "error_message": "клапан 💥", "result_code": -3},
                (status, None, "-3", "E12", "клапан 💥"),
            )
            for function, status in [
                (mark_command_failed, "ERROR"),
                (mark_command_invalid, "INVALID"),
                (mark_command_busy, "BUSY"),
            ]
        ),
        (
            mark_command_send_failed,
            {"error_message": "broker is down"},
            ("SEND_FAILED", None, None, None, "broker is down"),
        ),
    ],
)
async def test_arguments_go_to_the_columns_of_their_names_by_word_and_by_place(
    function, words, stored
):
    by_word, by_place = await command_in("QUEUED"), await command_in("QUEUED")
    await function(cmd_id=by_word, **words)
    await function(by_place, *words.values())
    for cmd_id in (by_word, by_place):
        row = await get_command(cmd_id)
        assert row is not None
        assert tuple(row[column] for column in COLUMNS) == stored


async def test_a_send_takes_leave_to_resend_by_place_too():
    cmd_id = await command_in("SEND_FAILED")
    assert not (await mark_command_sent(cmd_id, False)).changed
    assert (await mark_command_sent(cmd_id, True)).changed


# ---- the platform's callbacks ----

TASKS = count(64)
DEVICE = 1

PLATFORM_CODES = {
    "INITIALIZED": 1,
    "SAVED": 2,
    "SENT": 3,
    "DELIVERED": 4,
    "COMPLETED": 5,
    "TTL_TIMEOUT": 6,
    "TIMEOUT": 7,
}
PLATFORM_ALLOWS = {
    "INITIALIZED": {"SAVED", "SENT"},
    "SAVED": {"SENT"},
    "SENT": {"DELIVERED", "TIMEOUT"},
    "DELIVERED": {"COMPLETED"},
    "COMPLETED": set(),
    "TTL_TIMEOUT": set(),
    "TIMEOUT": set(),
}
AFTER_END = "指令已处于终态，忽略状态更新"
REPEATED = "收到重复的状态回调，忽略"
BACKWARDS = "状态回退或乱序，忽略更新"
ILLEGAL = "非法的状态流转，忽略更新"


async def platform_command(*statuses: str, lifecycle: str = "platform") -> tuple[str, int]:
    """Make a task of device 1, let the platform bring it through `statuses`; its id and task."""
    cmd_id, task = new_command_id(), next(TASKS)
    await create_command(cmd_id, lifecycle=lifecycle, task_id=task, node=str(DEVICE))
    for status in statuses:
        assert (await handle_callback(task, DEVICE, status)).changed
    return cmd_id, task


@pytest.mark.parametrize(
    ("path", "late", "result", "level", "line"),
    [
        pytest.param(
            ("SENT", "DELIVERED", "COMPLETED"),
            "DELIVERED",
            TransitionResult.TERMINAL,
            "warning",
            AFTER_END,
            id="1: a delayed callback after the end",
        ),
        pytest.param(
            ("SENT", "DELIVERED"),
            "DELIVERED",
            TransitionResult.DUPLICATE,
            "info",
            REPEATED,
            id="2: a repeated callback",
        ),
        pytest.param(
            ("SENT", "DELIVERED"),
            "SENT",
            TransitionResult.STALE,
            "warning",
            BACKWARDS,
            id="3: a step backwards",
        ),
        pytest.param(
            ("SENT",),
            "COMPLETED",
            TransitionResult.INVALID_STATE,
            "warning",
            ILLEGAL,
            id="4: a jump",
        ),
    ],
)
async def test_a_scenario_of_the_document_is_ignored_and_logged(path, late, result, level, line):
    cmd_id, task = await platform_command(*path)

    with capture_logs() as logs:
        answer = await handle_callback(task, DEVICE, late)

    assert (answer.result, answer.changed) == (result, False)
    assert await status_of(cmd_id) == path[-1]
    assert len(logs) == 1
    logged = logs[0]
    assert (logged["log_level"], logged["line"]) == (level, line)
    assert (logged["task_id"], logged["device_id"]) == (str(task), "1")
    assert (logged["current_status"], logged["new_status"]) == (path[-1], late)
    assert (await get_timeline(cmd_id))[-1]["verdict"] == result.value


async def test_a_callback_that_is_taken_logs_nothing():
    with capture_logs() as logs:
        await platform_command("SAVED", "SENT", "DELIVERED", "COMPLETED")
    assert not logs


def line_expected(old: str, new: str) -> str | None:
    """The document's `shouldUpdateStatus`, in its own order; `None` when the update is made."""
    if not PLATFORM_ALLOWS[old]:
        return AFTER_END
    if old == new:
        return REPEATED
    if PLATFORM_CODES[new] <= PLATFORM_CODES[old]:
        return BACKWARDS
    if new not in PLATFORM_ALLOWS[old]:
        return ILLEGAL
    return None


async def test_every_status_answers_every_callback_as_the_four_rules_say():
    for said, (old, new) in enumerate(product(PLATFORM_CODES, repeat=2)):
        task = next(TASKS)
        cmd_id = await command_in(old, lifecycle="platform", task_id=task, node="d")
        with capture_logs() as logs:
            # Half of the callbacks say the word, half the code.
            await handle_callback(task, "d", new if said % 2 else PLATFORM_CODES[new])
        expected = line_expected(old, new)
        assert [logged["line"] for logged in logs] == ([expected] if expected else []), (old, new)
        assert await status_of(cmd_id) == (old if expected else new), (old, new)


async def test_the_lenient_lifecycle_lets_a_jump_forward_through_and_nothing_else():
    await platform_command("SENT", "COMPLETED", lifecycle="platform_lenient")
    for old, new in product(PLATFORM_CODES, repeat=2):
        cmd_id = await command_in(old, lifecycle="platform_lenient", task_id=f"{old}>{new}")
        answer = await handle_callback(f"{old}>{new}", "", new)
        ended = old in {"COMPLETED", "TTL_TIMEOUT", "TIMEOUT"}
        moves = not ended and PLATFORM_CODES[new] > PLATFORM_CODES[old]
        assert (answer.changed, await status_of(cmd_id)) == (moves, new if moves else old)


async def test_a_callback_for_a_task_that_nobody_knows_is_a_verdict():
    unknown = next(TASKS)
    with capture_logs() as logs:
        answer = await handle_callback(unknown, DEVICE, "DELIVERED")
    assert answer == (None, TransitionResult.UNKNOWN_COMMAND, False)
    assert [(logged["log_level"], logged["task_id"], logged["device_id"]) for logged in logs] == [
        ("warning", str(unknown), "1")
    ]


async def test_a_callback_for_another_device_of_a_known_task_changes_nothing():
    cmd_id, task = await platform_command("SENT")
    answer = await handle_callback(task, 2, "DELIVERED")
    assert answer == (None, TransitionResult.UNKNOWN_COMMAND, False)
    assert await status_of(cmd_id) == "SENT"


async def test_one_task_of_two_devices_is_two_commands():
    task = next(TASKS)
    for device in (1, 2):
        await create_command(lifecycle="platform", task_id=task, node=str(device))
    first = await handle_callback(task, 1, "SENT")
    second = await handle_callback(task, 2, "SAVED")
    assert first.record is not None
    assert second.record is not None
    assert (first.record.status, second.record.status) == ("SENT", "SAVED")
    assert first.record.cmd_id != second.record.cmd_id


ODD = [
    pytest.param(None, id="none"),
    pytest.param(b"DELIVERED", id="bytes"),
    pytest.param(2**64, id="65 bits"),
    pytest.param(10**5_000, id="5001 digits"),
    pytest.param(-1, id="negative"),
    pytest.param(8, id="a code after the last"),
    pytest.param(True, id="true"),
    pytest.param(float("nan"), id="nan"),
    pytest.param(float("inf"), id="infinity"),
    pytest.param(Decimal("sNaN"), id="signalling nan"),
    pytest.param("", id="empty"),
    pytest.param("\x00", id="nul"),
    pytest.param("DELIVERED\x00", id="nul at the end"),
    pytest.param("\ud800", id="half a surrogate pair"),
    pytest.param("😀", id="emoji"),
    pytest.param("DELIVERED\n", id="newline"),
    pytest.param("\x1b[31m", id="terminal escape"),
    pytest.param("‮DELIVERED", id="bidi override"),  # noqa: PLE2502 - the case itself
    pytest.param("x" * 100_000, id="long"),
    pytest.param("'; DROP TABLE commands; --", id="sql"),
    pytest.param("delivered", id="another case"),
    pytest.param("deliver", id="our word for the event"),
    pytest.param([], id="list"),
    pytest.param({"status": "DELIVERED"}, id="dict"),
]


def is_plain(logged: object) -> bool:
    return logged is None or (
        isinstance(logged, str) and logged.isprintable() and len(logged) < 300
    )


@pytest.mark.parametrize("odd", ODD)
async def test_a_status_that_nobody_knows_fits_no_status(odd):
    cmd_id, task = await platform_command("SENT")
    with capture_logs() as logs:
        answer = await handle_callback(task, DEVICE, odd)
    assert (answer.result, answer.changed) == (TransitionResult.INVALID_STATE, False)
    assert await status_of(cmd_id) == "SENT"
    assert len(logs) == 1
    assert all(is_plain(logged) for logged in logs[0].values())


@pytest.mark.parametrize("odd", ODD)
async def test_an_id_that_nobody_gave_is_an_unknown_command(odd):
    cmd_id, task = await platform_command("SENT")
    for task_id, device_id in [(odd, DEVICE), (task, odd), (odd, odd)]:
        with capture_logs() as logs:
            answer = await handle_callback(task_id, device_id, "DELIVERED")
        assert answer == (None, TransitionResult.UNKNOWN_COMMAND, False)
        assert len(logs) == 1
        assert all(is_plain(logged) for logged in logs[0].values())
    assert await status_of(cmd_id) == "SENT"


async def status_of(cmd_id: str) -> object:
    row = await get_command(cmd_id)
    assert row is not None
    return row["status"]
