"""Conditional requests and cursors: what callers hand back is what they were given, or refused."""

from __future__ import annotations

import base64

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.api import paging
from onward.api.conditional import etag
from onward.errors import InvalidInput
from onward.wiring import Onward
from tests.api.test_foundation import told


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Nothing here minds what another test has left behind."""
    return shared


# What If-Match says, and the answer when the present version is 5.
IF_MATCH: dict[str, tuple[list[bytes], int, str]] = {
    "missing": ([], 428, "if-match-required"),
    "any": ([b"*"], 428, "if-match-required"),
    "unquoted": ([b"5"], 400, "if-match-malformed"),
    "unbalanced": ([b'"5'], 400, "if-match-malformed"),
    "unbalanced at the start": ([b'5"'], 400, "if-match-malformed"),
    "single quotes": ([b"'5'"], 400, "if-match-malformed"),
    "empty": ([b""], 400, "if-match-malformed"),
    "an empty tag": ([b'""'], 400, "if-match-malformed"),
    "10 KB": ([b'"' + b"5" * 10_000 + b'"'], 400, "if-match-malformed"),
    "201 characters": ([b'"' + b"5" * 199 + b'"'], 400, "if-match-malformed"),
    "a control byte": ([b'"5\x01"'], 400, "if-match-malformed"),
    "a DEL": ([b'"5\x7f"'], 400, "if-match-malformed"),
    "a space inside": ([b'"5 "'], 400, "if-match-malformed"),
    "two headers": ([b'"5"', b'"5"'], 400, "if-match-malformed"),
    "a list": ([b'"4", "5"'], 400, "if-match-malformed"),
    "a list with a weak one": ([b'W/"4","5"'], 400, "if-match-malformed"),
    "an open list": ([b'"5",'], 400, "if-match-malformed"),
    "any in a list": ([b'*, "5"'], 400, "if-match-malformed"),
    "no number": ([b'"abc"'], 400, "if-match-malformed"),
    "a tag of other bytes": ([b'"\xe4"'], 400, "if-match-malformed"),
    "zero": ([b'"0"'], 400, "if-match-malformed"),
    "a leading zero": ([b'"05"'], 400, "if-match-malformed"),
    "a sign": ([b'"+5"'], 400, "if-match-malformed"),
    "negative": ([b'"-5"'], 400, "if-match-malformed"),
    "2^63": ([b'"9223372036854775808"'], 400, "if-match-malformed"),
    "weak": ([b'W/"5"'], 412, "stale"),
    "weak and stale": ([b'W/"4"'], 412, "stale"),
    "lower-case weak": ([b'w/"5"'], 400, "if-match-malformed"),
    "stale": ([b'"4"'], 412, "stale"),
    "from the future": ([b'"9223372036854775807"'], 412, "stale"),
}


@pytest.mark.parametrize("case", IF_MATCH)
async def test_the_table_of_if_match(sample: httpx2.AsyncClient, case):
    values, status, code = IF_MATCH[case]
    headers = [(b"if-match", value) for value in values]
    told(await sample.put("/sample/5", headers=headers), status, code)


async def test_the_present_version_is_taken(sample: httpx2.AsyncClient):
    shown = (await sample.get("/sample/5")).headers["etag"]
    answer = await sample.put("/sample/5", headers={"If-Match": shown})
    assert answer.json() == {"version": 5}


async def test_who_is_stale_is_told_the_present_version(sample: httpx2.AsyncClient):
    answer = await sample.put("/sample/5", headers={"If-Match": etag(4)})
    assert answer.headers["etag"] == '"5"'
    assert (answer.json()["version"], answer.json()["etag"]) == (5, '"5"')


@pytest.mark.parametrize(
    ("values", "same"),
    [
        (['"5"'], True),
        (['W/"5"'], True),
        (["*"], True),
        (['"4", "5"'], True),
        (['"4" , W/"5"'], True),
        (['"4"', '"5"'], True),
        ([], False),
        (['"4"'], False),
        (["5"], False),
        (['"5'], False),
        ([""], False),
        (['"5", 5'], False),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_who_has_the_present_version_is_not_sent_it_again(
    sample: httpx2.AsyncClient, values, same, method
):
    headers = [("If-None-Match", value) for value in values]
    answer = await sample.request(method, "/sample/5", headers=headers)
    assert answer.status_code == (304 if same else 200)
    assert answer.headers["etag"] == '"5"'
    assert (answer.content == b"") is (same or method == "HEAD")


# Cursors

positions = st.lists(
    st.integers(-(2**63) + 1, 2**63 - 1)
    | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=60),
    max_size=4,
)


@given(positions)
def test_a_cursor_comes_back_as_it_was(position):
    cursor = paging.encode("jobs", position)
    assert paging.decode("jobs", cursor) == position
    assert cursor.isascii()
    assert not set(cursor) & set("+/=&?% ")


@given(positions, st.data())
def test_a_cursor_that_was_changed_is_refused_or_means_the_same(position, data):
    """The last character of base64 has bits that mean nothing."""
    cursor = paging.encode("jobs", position)
    at = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.characters(min_codepoint=32, max_codepoint=126))
    changed = cursor[:at] + other + cursor[at + 1 :]
    try:
        found = paging.decode("jobs", changed)
    except InvalidInput:
        return
    assert found == position


def forged(kind: str, told_: bytes) -> str:
    return base64.urlsafe_b64encode(paging._check(kind, told_) + told_).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "a",
        "abcd",
        "=" * 8,
        "!!!!",
        "é",
        "a" * 5_000,
        paging.encode("hosts", [1]),
        forged("jobs", b"{}"),
        forged("jobs", b"1"),
        forged("jobs", b"[1"),
        forged("jobs", b"[1.5]"),
        forged("jobs", b"[null]"),
        forged("jobs", b"[true]"),
        forged("jobs", b"[[1]]"),
        forged("jobs", b"[NaN]"),
        forged("jobs", b"[9223372036854775808]"),
        forged("jobs", rb'["\u0000"]'),
        forged("jobs", rb'["\ud800"]'),
        forged("jobs", b"\xff"),
        forged("jobs", b"[" * 700),
    ],
)
def test_a_foreign_cursor_is_refused(cursor):
    with pytest.raises(InvalidInput, match="cursor"):
        paging.decode("jobs", cursor)


@pytest.mark.parametrize("position", [[], [1], [1, "a"], [1, 2, 3]])
def test_a_cursor_of_another_shape_is_refused(position):
    with pytest.raises(InvalidInput, match="cursor"):
        paging.decode_ids("jobs", paging.encode("jobs", position), length=2)


def test_without_a_cursor_a_list_begins_at_its_beginning():
    assert paging.decode("jobs", None) is None
    assert paging.decode_ids("jobs", None, length=1) is None
