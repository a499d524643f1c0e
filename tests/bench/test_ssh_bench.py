"""The measurement of SSH: small, and only as to whether it measures what it says."""

from __future__ import annotations

import pytest

from onward.bench import ssh, sshd
from onward.bench.ssh import Sizes
from onward.errors import InvariantBroken
from tests.bench.results import well_formed

SMALL = Sizes(hosts=18, rounds=1, at_once=(9,))


@pytest.mark.skipif(
    sshd.sshd() is None, reason="not run: needs sshd, which comes with openssh-server"
)
def test_a_command_on_many_hosts_is_measured_beside_both_peers():
    told: list[str] = []
    results = list(ssh.ssh(told.append, SMALL))
    assert [result.name.split(", beside ")[1] for result in results] == [
        "ansible -m raw",
        "parallel-ssh",
    ]
    assert all(well_formed(result) for result in results)
    assert "9 forks" in str(results[0].against)
    assert "9 greenlets" in str(results[1].against)
    assert sum("hosts/s" in line for line in told) == 3


def test_without_an_sshd_the_rows_stay_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ssh, "sshd", lambda: None)
    for result in ssh.ssh(lambda _: None, SMALL):
        assert "not run: needs sshd" in str(result.against)
        assert (result.ratio, result.holds) == (None, None)


def test_hosts_that_were_not_reached_are_not_counted():
    ground = sshd.Ground(folder=None, user="", ports=(1, 2))  # type: ignore[arg-type]  # not asked for
    ssh._check(2, 2, ground)
    with pytest.raises(InvariantBroken, match="1 ran the command"):
        ssh._check(1, 2, ground)
