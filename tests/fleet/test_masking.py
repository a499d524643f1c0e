"""What nobody is to see is in nothing that is told, in whatever pieces it came."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onward.channels.base import Report, Stream
from onward.core.retry import Backoff
from onward.errors import DeliveryUnknown, HostBusy, HostRefused, NotDelivered
from onward.fleet.masking import LEAST, SHOWN, Hidden, Veil, hidden_of, masked_params
from onward.fleet.output import LINE_MAX, Output
from onward.fleet.report import Attempt, reported, unreported

OUT, ERR = Stream.STDOUT, Stream.STDERR
# Few letters, so that values overlap, repeat and begin within each other.
FEW = st.text("ab\n", min_size=LEAST, max_size=9).filter(lambda text: len(text.strip()) >= LEAST)
TEXT = st.text("ab\nc", max_size=40)


def hiding(*values: object) -> Hidden:
    params = {f"p{number}": value for number, value in enumerate(values)}
    found = hidden_of(json.dumps(params), list(params))
    assert found is not None
    return found


def veiled(hidden: Hidden, pieces: list[str]) -> str:
    veil = Veil(hidden)
    return "".join([*(veil.take(piece) for piece in pieces), veil.take("", last=True)])


@given(st.lists(FEW, min_size=1, max_size=3), st.lists(st.one_of(TEXT, FEW), max_size=8))
def test_no_value_is_left_in_a_text_whatever_pieces_it_comes_in(
    values: list[str], pieces: list[str]
):
    assume(pieces)
    told = veiled(hiding(*values), pieces)
    # Between two that were taken out there may be what looks like one; there was none.
    for between in told.split(SHOWN):
        assert not any(value in between for value in values)


@given(st.lists(FEW, min_size=1, max_size=3), st.lists(st.one_of(TEXT, FEW), max_size=8))
def test_pieces_make_no_difference_to_what_is_left(values: list[str], pieces: list[str]):
    hidden, whole = hiding(*values), "".join(pieces)
    told, at_once = veiled(hidden, pieces), hidden.out_of(whole)
    # Two values that touch may be told as one or as two.
    assert [part for part in told.split(SHOWN) if part] == [
        part for part in at_once.split(SHOWN) if part
    ]


@given(st.text("xyz\n", max_size=50), st.integers(0, 50))
def test_what_holds_no_value_is_told_as_it_is(text: str, cut: int):
    assert veiled(hiding("abcd", "bbbb\nbb"), [text[:cut], text[cut:]]) == text


def test_values_that_overlap_leave_nothing_of_each_other():
    assert hiding("abcd", "cdef").out_of("_abcdef_") == f"_{SHOWN}_"
    assert hiding("aaaa").out_of("_aaaaaa_") == f"_{SHOWN}_"
    assert veiled(hiding("aaaa"), ["aaaa", "", "", "a"]) == SHOWN
    assert veiled(hiding("abcd", "cdef"), ["_ab", "cd", "ef_", "ab", "cd", "xx"]) == (
        f"_{SHOWN}_{SHOWN}xx"
    )


def test_a_value_of_several_lines_is_found_line_by_line():
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7\r\nq8Zt\n-----END KEY-----\n"
    told = hiding(key).out_of(f"1: -----BEGIN KEY-----\n2: MIIEpAIBAAKCAQEA7\n3: q8Zt\n{key}")
    assert told == f"1: {SHOWN}\n2: {SHOWN}\n3: {SHOWN}\n{SHOWN}"


def test_a_value_is_found_as_json_writes_it():
    value = 'pa"ss\\wörd\n'
    hidden = hiding(value)
    for ascii_only in (True, False):
        written = json.dumps({"said": f"it was {value}!"}, ensure_ascii=ascii_only)
        assert hidden.out_of(written) == f'{{"said": "it was {SHOWN}!"}}'


def test_every_text_and_number_within_a_parameter_is_hidden():
    hidden = hiding({"user": "anna", "keys": ["first-key", {"pin": 4711}]}, 31.25)
    assert hidden.out_of("anna first-key 4711 31.25") == " ".join([SHOWN] * 4)
    said = {"anna": [4711, 4712, True, None], "x": "my first-key"}
    assert hidden.out_of_value(said) == {
        SHOWN: [SHOWN, 4712, True, None],
        "x": f"my {SHOWN}",
    }


def test_what_would_be_found_everywhere_is_not_searched_for():
    assert (
        hidden_of('{"a": "abc", "b": true, "c": null, "d": 17, "e": "     "}', list("abcde"))
        is None
    )
    assert hidden_of('{"a": "secret"}', []) is None
    assert hidden_of('{"a": "secret"}', ["b"]) is None


def test_hidden_values_are_not_shown_by_what_holds_them():
    assert "secret" not in repr(hiding("secret"))


def test_whoever_is_cut_off_within_a_value_has_told_nothing_of_it():
    assert veiled(hiding("hunter22"), ["it is hunte"]) == f"it is {SHOWN}"
    assert veiled(hiding("hunter22"), ["it is hun"]) == "it is hun"


def test_a_text_that_goes_on_for_ever_is_not_held_back_for_ever():
    hidden = hiding("abab")
    veil = Veil(hidden)
    told = "".join(veil.take("ab") for _ in range(10_000))
    assert len(told) < 10
    assert veil.take("abx") in {SHOWN + "x", "x"}
    long = "x" * 100_000
    veil = Veil(hiding(long))
    told = "".join(veil.take(long[:1_000]) for _ in range(200)) + veil.take("", last=True)
    assert "x" not in told


def test_only_what_is_masked_is_shown_otherwise():
    params = {"user": "ann", "token": {"deep": ["secret"]}, "pin": 1}
    assert masked_params(params, ["token", "pin", "none"]) == {
        "user": "ann",
        "token": SHOWN,
        "pin": SHOWN,
    }
    assert masked_params(params, []) is params


def lines(hidden: Hidden, *pieces: tuple[Stream, str]) -> list[tuple[str, str]]:
    output = Output(1, 7, 1, hidden=hidden)
    for piece in pieces:
        output(*piece)
    return [(line.stream, line.text) for line in output.close()]


def test_output_is_stored_without_the_values_of_either_stream():
    assert lines(
        hiding("hunter22", "two\nlines"),
        *((OUT, "pass: hun"), (ERR, "hunter"), (OUT, "ter22\nbye tw"), (ERR, "22!\n")),
        *((OUT, "o\nlin"), (OUT, "es\r\nlast: hunter2")),
    ) == [
        ("stdout", f"pass: {SHOWN}"),
        ("stderr", f"{SHOWN}!"),
        ("stdout", f"bye {SHOWN}"),
        ("stdout", f"last: {SHOWN}"),
    ]


@pytest.mark.parametrize("size", [1, 7, LINE_MAX, 3 * LINE_MAX])
@pytest.mark.parametrize("before", [LINE_MAX - 8, LINE_MAX - 4, LINE_MAX - 1, LINE_MAX + 9])
def test_a_line_that_is_cut_within_a_value_shows_nothing_of_it(size: int, before: int):
    text = "." * before + "hunter22" + "." * LINE_MAX + "\n"
    pieces = [(OUT, text[at : at + size]) for at in range(0, len(text), size)]
    found = lines(hiding("hunter22"), *pieces)
    told = "".join(line for stream, line in found if stream == OUT.value)
    assert told
    assert not any(part in told for part in ("hun", "unt", "nte", "ter", "er2", "r22"))


def test_complete_lines_can_be_taken_while_a_value_may_have_begun():
    output = Output(1, 7, 1, hidden=hiding("hunter22"))
    output(OUT, "one\ntwo hunt")
    assert [line.text for line in output.take()] == ["one"]
    output(OUT, "ers\n")
    assert [line.text for line in output.close()] == ["two hunters"]


def test_what_went_wrong_is_told_without_the_values():
    attempt = Attempt(1, 7, 0, 0, hiding("hunter22"))
    backoff = Backoff(1.0, 2.0)
    events = [
        reported(attempt, Report(succeeded=False, exit_code=1, error="bad hunter22"), backoff, 0.5),
        *(
            unreported(attempt, error, backoff, 0.5)
            for error in (
                HostBusy("bad hunter22"),
                HostRefused("bad hunter22"),
                NotDelivered("bad hunter22"),
                DeliveryUnknown("bad hunter22"),
                TimeoutError("bad hunter22"),
            )
        ),
    ]
    assert [json.loads(event.data or "")["error"] for event in events] == [f"bad {SHOWN}"] * 6
