"""Settings: read once from `ONWARD_…`, refused readably, never changed afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from onward.settings import Settings

FIELDS = Settings.model_fields

GIVEN = {
    "data_dir": ("/srv/onward", Path("/srv/onward")),
    "database_url": ("postgresql://db/onward", "postgresql://db/onward"),
    "require_durable": ("false", False),
    "redis_url": ("redis://cache/0", "redis://cache/0"),
    "pool_size": ("3", 3),
    "command_timeout_s": ("1.5", 1.5),
    "payload_max_bytes": ("1024", 1024),
    "batch_max_events": ("7", 7),
    "group_commit_ms": ("0", 0.0),
    "timeline_keep_months": ("1", 1),
    "worker_capacity": ("10", 10),
    "worker_lost_after_s": ("2.5", 2.5),
    "drain_s": ("0", 0.0),
    "base_backoff_s": ("0.5", 0.5),
    "max_backoff_s": ("60", 60.0),
    "backoff_jitter": ("seconds", "seconds"),
    "host": ("::1", "::1"),
    "port": ("0", 0),
    "admin_key": ("k" * 32, SecretStr("k" * 32)),
    "session_hours": ("0.5", 0.5),
    "webhook_secrets": ("whsec_x", SecretStr("whsec_x")),
    "body_max_bytes": ("2048", 2_048),
    "body_timeout_s": ("1", 1.0),
    "currencies": ("SEK,NOK", "SEK,NOK"),
    "commission_bp": ("10", 10),
    "matchers": ("5", 5),
    "broker_url": ("redis://queue/1", "redis://queue/1"),
    "simulated_network": ("bad", "bad"),
    "simulated_fleet": ("/run/hosts.sock", Path("/run/hosts.sock")),
    "master_key": ("m" * 32, SecretStr("m" * 32)),
    "ssh_dir": ("/srv/ssh", Path("/srv/ssh")),
    "ssh_agent": ("/run/agent.sock", Path("/run/agent.sock")),
    "ssh_user": ("deploy", "deploy"),
    "ssh_connections": ("7", 7),
    "ssh_sessions": ("3", 3),
    "mqtt_url": ("mqtt://broker", SecretStr("mqtt://broker")),
    "mqtt_prefix": ("plant", "plant"),
    "platforms": ("/srv/platforms.toml", Path("/srv/platforms.toml")),
    "hub_url": ("http://api-1:8470", "http://api-1:8470"),
    "url": ("https://onward.example.com", "https://onward.example.com"),
    "key": ("ow_key", SecretStr("ow_key")),
    "config": ("/srv/onward.toml", Path("/srv/onward.toml")),
    "context": ("prod", "prod"),
}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIELDS:
        monkeypatch.delenv(f"ONWARD_{name.upper()}", raising=False)


def test_every_setting_says_what_it_is():
    for name, field in FIELDS.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_every_number_has_its_bounds():
    for name, field in FIELDS.items():
        if field.annotation in {int, float}:
            limits = {type(limit).__name__ for limit in field.metadata}
            assert limits & {"Ge", "Gt"}, name
            assert limits & {"Le", "Lt"}, name


@pytest.mark.parametrize("name", list(FIELDS))
def test_every_setting_is_read_from_the_environment(name, monkeypatch):
    told, meant = GIVEN[name]
    monkeypatch.setenv(f"ONWARD_{name.upper()}", told)
    assert getattr(Settings(), name) == meant
    assert getattr(Settings(), name) != FIELDS[name].get_default(call_default_factory=True)


def test_without_the_prefix_nothing_is_read(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/x")
    monkeypatch.setenv("POOL_SIZE", "3")
    assert (Settings().database_url, Settings().pool_size) == (None, 8)


def test_an_empty_variable_is_as_good_as_none(monkeypatch):
    monkeypatch.setenv("ONWARD_DATABASE_URL", "")
    monkeypatch.setenv("ONWARD_POOL_SIZE", "")
    assert (Settings().database_url, Settings().pool_size) == (None, 8)


def test_a_variable_that_is_not_ours_is_left_alone(monkeypatch):
    monkeypatch.setenv("ONWARD_TEST_DATABASE_URL", "postgresql://elsewhere/x")
    assert Settings().database_url is None


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("require_durable", "perhaps"),
        ("pool_size", "0"),
        ("pool_size", "many"),
        ("pool_size", "1.5"),
        ("pool_size", "501"),
        ("command_timeout_s", "0"),
        ("command_timeout_s", "-1"),
        ("command_timeout_s", "nan"),
        ("command_timeout_s", "inf"),
        ("command_timeout_s", "soon"),
        ("payload_max_bytes", "0"),
        ("payload_max_bytes", "1e12"),
        ("batch_max_events", "0"),
        ("group_commit_ms", "-1"),
        ("group_commit_ms", "nan"),
        ("group_commit_ms", "1001"),
        ("timeline_keep_months", "0"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_itself(name, bad, monkeypatch):
    monkeypatch.setenv(f"ONWARD_{name.upper()}", bad)
    with pytest.raises(ValidationError) as caught:
        Settings()
    (problem,) = caught.value.errors()
    assert problem["loc"] == (name,)
    assert problem["input"] == bad
    told = str(caught.value)
    assert name in told
    assert bad in told


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValidationError):
        Settings().pool_size = 3
