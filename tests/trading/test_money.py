"""Amounts, items and currencies: what is none is refused with what it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import InvalidInput
from onward.trading import money
from onward.trading.money import AMOUNT_MAX, ITEM_MAX

KNOWN = ("EUR", "USD")

# What stands in the place of a whole number, and what is said about it.
NO_NUMBERS: dict[str, tuple[object, str]] = {
    "a float": (1.0, "a number with a fraction or an exponent"),
    "a fraction": (0.5, "a number with a fraction or an exponent"),
    "NaN": (math.nan, "a number with a fraction or an exponent"),
    "without end": (math.inf, "a number with a fraction or an exponent"),
    "text": ("1", "text"),
    "empty": ("", "text"),
    "true": (True, "a truth value"),
    "false": (False, "a truth value"),
    "null": (None, "null"),
    "a list": ([1], "a list"),
    "an object": ({}, "an object"),
    "bytes": (b"1", "something else"),
}


@pytest.mark.parametrize("check", [money.amount, money.pieces, money.item])
def test_what_is_no_whole_number_is_refused_with_what_it_is(check):
    for case, (value, told) in NO_NUMBERS.items():
        with pytest.raises(InvalidInput) as found:
            check("price", value)
        assert found.value.field == "price"
        assert found.value.problem.startswith(f"is {told};"), case


@pytest.mark.parametrize("check", [money.amount, money.pieces])
@given(st.integers(1, AMOUNT_MAX))
def test_every_amount_that_may_be_moved_is_taken_as_it_is(check, value):
    assert check("amount", value) == value


@pytest.mark.parametrize("check", [money.amount, money.pieces])
@given(st.integers(max_value=0) | st.integers(min_value=AMOUNT_MAX + 1))
def test_nothing_less_than_one_and_nothing_absurd_is_moved(check, value):
    with pytest.raises(InvalidInput) as found:
        check("amount", value)
    assert len(found.value.problem) < 200


@pytest.mark.parametrize("check", [money.amount, money.pieces, money.item])
def test_a_number_of_any_size_is_refused_in_a_short_sentence(check):
    for value in (10**5_000, -(10**5_000), 2**63):
        with pytest.raises(InvalidInput) as found:
            check("amount", value)
        assert len(str(found.value)) < 200


def test_items_are_numbered_from_one_to_as_many_as_can_be_stored():
    assert [money.item("item_id", number) for number in (1, ITEM_MAX)] == [1, ITEM_MAX]
    for number in (0, -1, ITEM_MAX + 1):
        with pytest.raises(InvalidInput, match="is not between 1 and"):
            money.item("item_id", number)


def test_a_currency_is_one_that_is_traded():
    assert money.currency("currency", "USD", KNOWN) == "USD"
    for value, told in (
        ("usd", "'usd' is not one of EUR, USD"),
        ("", "'' is not one of EUR, USD"),
        ("EUR ", "'EUR ' is not one of EUR, USD"),
        (None, "is null; send text, such as EUR"),
        (978, "is a number; send text, such as EUR"),
        ([], "is a list; send text, such as EUR"),
    ):
        with pytest.raises(InvalidInput) as found:
            money.currency("currency", value, KNOWN)
        assert found.value.problem == told


def test_the_settings_name_currencies_by_their_codes():
    assert money.currencies("EUR") == ("EUR",)
    assert money.currencies(" EUR, USD ,CHF") == ("EUR", "USD", "CHF")
    for given_ in (
        "",
        "EUR,",
        "eur",
        "EURO",
        "E1R",
        "\u0415UR",
        "EUR;USD",
        "item:1",
        "EUR,USD,EUR",
    ):
        with pytest.raises(InvalidInput) as found:
            money.currencies(given_)
        assert found.value.field == "ONWARD_CURRENCIES"
