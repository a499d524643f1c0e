"""The measurements of the command line: small, and whether they measure what they say."""

from __future__ import annotations

import pytest

from onward.bench import command_line
from onward.errors import InvariantBroken
from tests.bench.results import well_formed


def test_the_help_and_the_list_of_jobs_are_measured():
    told: list[str] = []
    sizes = command_line.Sizes(few=5, many=70, rounds=1)
    help_, jobs = command_line.command_line(told.append, sizes)
    assert well_formed(help_)
    assert well_formed(jobs)
    assert "70 jobs" in jobs.name
    assert "5 jobs" in str(jobs.against)


@pytest.mark.parametrize(("lines", "count"), [(5, 5), (50, 70), (70, 70), (0, 5)])
def test_a_list_that_is_not_whole_is_not_counted(lines: int, count: int):
    with pytest.raises(InvariantBroken):
        command_line._check("row\n" * lines, count)
