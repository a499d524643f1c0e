"""The page of a job, measured in Chromium: small here, whole with --proof."""

from __future__ import annotations

import pytest

from onward.bench import chromium, dashboard
from onward.bench.dashboard import Sizes
from tests.bench.results import well_formed
from tests.proof_table import Tried

needs_chromium = pytest.mark.skipif(
    chromium.missing(), reason="not run: needs chromium, which comes with Debian's chromium"
)


@needs_chromium
@pytest.mark.timeout(900)
def test_the_page_of_a_job_is_measured_coming_up_and_keeping_up(proof, tried: Tried):
    sizes = Sizes() if proof else Sizes(hosts=400, rounds=1, warm_s=1, seconds=3)
    told: list[str] = []
    results = list(dashboard.dashboard(told.append, sizes))
    assert [result.unit for result in results[:3]] == ["ms", "ms", "bytes"]
    assert len(results) == 5
    assert all(well_formed(result) for result in results)
    assert any("bytes" in line for line in told)
    for result in results:
        tried(
            f"measured once: {result.name}",
            1,
            f"{result.value:,.2f} {result.unit}, target {result.target}",
        )


def test_without_a_browser_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chromium, "_found", lambda: None)
    told: list[str] = []
    results = list(dashboard.dashboard(told.append))
    assert told == ["not run: needs chromium"]
    assert all(result.holds is None and result.ratio is None for result in results)
