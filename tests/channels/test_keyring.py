"""The keys of hosts come from one secret, and nowhere else."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from onward.channels.keyring import FILE, KeyRing, key_ring
from onward.errors import InvalidInput
from onward.settings import Settings


def test_each_host_generation_and_kind_has_a_key_of_its_own():
    ring = KeyRing(b"m" * 32)
    keys = {ring.agent_key(host, generation) for host in (1, 11) for generation in (1, 11)}
    keys |= {ring.node_key(host, generation) for host in (1, 11) for generation in (1, 11)}
    assert len(keys) == 8
    assert KeyRing(b"n" * 32).agent_key(1, 1) not in keys
    assert KeyRing(b"m" * 32).agent_key(1, 1) in keys


def test_the_first_start_makes_the_secret_and_only_its_owner_reads_it(tmp_path: Path):
    settings = Settings(data_dir=tmp_path / "new")
    first = key_ring(settings).agent_key(1, 1)
    assert key_ring(settings).agent_key(1, 1) == first
    path = tmp_path / "new" / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [FILE]


def test_of_many_who_start_at_once_all_get_the_same(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    with ThreadPoolExecutor(16) as threads:
        rings = list(threads.map(lambda _: key_ring(settings), range(64)))
    assert len({ring.agent_key(1, 1) for ring in rings}) == 1


def test_what_the_environment_names_is_taken(tmp_path: Path):
    given = Settings(data_dir=tmp_path, master_key=SecretStr("m" * 32))
    assert key_ring(given).agent_key(1, 1) == KeyRing(b"m" * 32).agent_key(1, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", ["short", "with a space in the middle of it all", "é" * 40])
def test_what_is_no_secret_is_refused_without_showing_it(tmp_path: Path, bad: str):
    with pytest.raises(InvalidInput, match="ONWARD_MASTER_KEY") as refusal:
        key_ring(Settings(data_dir=tmp_path, master_key=SecretStr(bad)))
    assert bad not in str(refusal.value)


def test_a_ring_does_not_show_its_secret():
    assert "m" * 8 not in repr(KeyRing(b"m" * 32))
