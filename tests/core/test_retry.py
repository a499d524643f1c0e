"""When a failed attempt is tried again, how long it waits, and what it becomes in the end."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.lifecycles import EXECUTION
from onward.core.retry import AfterFailure, Backoff, Cause, after_failure
from onward.errors import InvalidInput

CHANCES = st.floats(min_value=0, max_value=1, exclude_max=True)
RETRIES = st.integers(min_value=0, max_value=10**30)


@st.composite
def backoffs(draw) -> Backoff:
    base_s = draw(st.floats(min_value=0.001, max_value=86_400))
    max_s = draw(st.floats(min_value=base_s, max_value=366 * 86_400))
    return Backoff(base_s, max_s, draw(st.sampled_from(("full", "seconds"))))


@pytest.mark.parametrize(
    ("retries_done", "window_s"), [(0, 2), (1, 4), (2, 8), (3, 16), (4, 30), (5, 30), (2**70, 30)]
)
def test_the_window_doubles_with_every_retry_up_to_its_limit(retries_done, window_s):
    assert Backoff(2, 30).window_s(retries_done) == window_s


@pytest.mark.parametrize(
    ("retries_done", "chance", "delay_s"),
    [(0, 0.0, 2), (0, 0.5, 2.5), (1, 0.25, 4.25), (3, 0.75, 16.75), (9, 0.0, 30), (9, 0.5, 30.5)],
)
def test_jitter_in_seconds_is_the_formula_that_was_asked_for(retries_done, chance, delay_s):
    assert Backoff(2, 30, "seconds").delay_s(retries_done, chance) == delay_s


@pytest.mark.parametrize(
    ("retries_done", "chance", "delay_s"),
    [(0, 0.0, 0), (0, 0.5, 1), (1, 0.25, 1), (3, 0.75, 12), (9, 0.5, 15)],
)
def test_full_jitter_is_the_default_and_spreads_over_the_whole_window(
    retries_done, chance, delay_s
):
    assert Backoff(2, 30).delay_s(retries_done, chance) == delay_s


def test_a_thousand_hosts_that_failed_together_come_back_apart_with_full_jitter_only():
    """Even chances, so that the figure is exact: hosts due within the busiest second."""

    def busiest(backoff: Backoff) -> int:
        delays = [backoff.delay_s(4, number / 1000) for number in range(1000)]
        return max(sum(start <= delay < start + 1 for delay in delays) for start in delays)

    assert busiest(Backoff(2, 32, "seconds")) == 1000
    assert busiest(Backoff(2, 32)) <= 1000 / 32 + 1


@given(backoffs(), RETRIES, CHANCES)
def test_every_delay_is_finite_and_within_its_bounds(backoff, retries_done, chance):
    delay_s = backoff.delay_s(retries_done, chance)
    low, high = (0, backoff.max_s) if backoff.jitter == "full" else (0, backoff.max_s + 1)
    assert math.isfinite(delay_s)
    assert low <= delay_s <= high


@given(backoffs(), RETRIES, CHANCES)
def test_a_later_retry_never_waits_less_by_the_same_chance(backoff, retries_done, chance):
    assert backoff.delay_s(retries_done, chance) <= backoff.delay_s(retries_done + 1, chance)


@pytest.mark.parametrize("retries_done", [10_000, 2**10_000])
def test_a_great_many_retries_do_not_overflow(retries_done):
    assert Backoff(0.001, 366 * 86_400).window_s(retries_done) == 366 * 86_400


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("base_s", (0, 30)),
        ("base_s", (-1, 30)),
        ("base_s", (math.nan, 30)),
        ("base_s", (10**5_000, 30)),
        ("base_s", (True, 30)),
        ("base_s", ("2", 30)),
        ("base_s", (None, 30)),
        ("base_s", (31, 30)),
        ("max_s", (2, math.inf)),
        ("max_s", (2, math.nan)),
        ("max_s", (2, 0)),
        ("max_s", (2, 367 * 86_400)),
        ("jitter", (2, 30, "none")),
        ("jitter", (2, 30, None)),
        ("jitter", (2, 30, ["full"])),
    ],
)
def test_bad_settings_are_refused_by_name(field, settings):
    with pytest.raises(InvalidInput) as refused:
        Backoff(*settings)
    assert refused.value.field == field


@pytest.mark.parametrize("chance", [-0.1, 1.0, 1.5, math.nan, math.inf])
def test_a_chance_outside_of_0_to_1_is_refused(chance):
    with pytest.raises(InvalidInput, match="chance"):
        Backoff(2, 30).delay_s(0, chance)


@pytest.mark.parametrize("count", [-1, True, 1.0, "1", None])
def test_a_count_of_retries_that_is_none_is_refused(count):
    with pytest.raises(InvalidInput, match="retries_done"):
        Backoff(2, 30).delay_s(count, 0.5)
    with pytest.raises(InvalidInput, match="retries_done"):
        after_failure(count, 3, Cause.FAILED)
    with pytest.raises(InvalidInput, match="max_retries"):
        after_failure(0, count, Cause.FAILED)


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("max_retries", range(4))
def test_every_cause_but_a_refusal_is_retried_up_to_the_limit(cause, max_retries):
    for retries_done in range(6):
        retried = cause is not Cause.REFUSED and retries_done < max_retries
        expected = AfterFailure.RETRY if retried else AfterFailure.END
        assert after_failure(retries_done, max_retries, cause) is expected


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause.UNREACHABLE, "FAILED"),
        (Cause.REFUSED, "FAILED"),
        (Cause.FAILED, "FAILED"),
        (Cause.TIMED_OUT, "TIMEOUT"),
        (Cause.DELIVERY_UNKNOWN, "TIMEOUT"),
    ],
)
def test_a_timeout_ends_as_timed_out_and_any_other_error_as_failed(cause, status):
    assert EXECUTION.decide("RUNNING", cause.terminal_event).target == status


@pytest.mark.parametrize("cause", Cause)
def test_a_late_result_is_kept_exactly_when_the_host_may_have_run_the_command(cause):
    """Unknown is not failed: what ends without a word from the host must still take that word."""
    ended = EXECUTION.decide("RUNNING", cause.terminal_event).target
    silent = cause in {Cause.TIMED_OUT, Cause.DELIVERY_UNKNOWN}
    assert EXECUTION.keeps_late(ended, "succeed") is silent


def test_what_follows_a_failure_is_a_move_of_the_execution():
    """The decision's own value is the event, so nobody translates between the two."""
    assert EXECUTION.decide("RUNNING", AfterFailure.RETRY.value).target == "QUEUED"


def test_every_cause_says_what_it_means():
    meanings = [cause.meaning for cause in Cause]
    assert len(set(meanings)) == len(Cause)
    assert all(meaning.endswith(".") for meaning in meanings)
