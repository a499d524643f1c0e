"""Everything that can be configured, read once from the environment (`ONWARD_…`).

No other module reads the environment. The object is frozen and handed down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The settings of one process."""

    model_config = SettingsConfigDict(
        env_prefix="ONWARD_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("onward"),
        description="Where the embedded servers keep their data.",
    )
    database_url: str | None = Field(
        default=None,
        description="A PostgreSQL (15 or newer) of your own; the embedded one when unset.",
    )
    require_durable: bool = Field(
        default=True,
        description="Refuse a PostgreSQL that may forget what it has confirmed. "
        "Switch it off only where the data may be lost, as in tests.",
    )
    redis_url: str | None = Field(
        default=None,
        description="A Redis (6.2 or newer) or Valkey of your own; the embedded one when unset.",
    )
    broker_url: str | None = Field(
        default=None,
        description="The Redis, Valkey or RabbitMQ through which Celery workers are told of work; "
        "`ONWARD_REDIS_URL` when unset.",
    )
    pool_size: int = Field(
        default=8, ge=1, le=500, description="Connections to PostgreSQL that one process keeps."
    )
    command_timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=366 * 86_400,
        description="Seconds until a command that nobody finished times out, "
        "unless it was created with its own.",
    )
    payload_max_bytes: int = Field(
        default=256 * 1024,
        ge=1,
        le=64 * 1024 * 1024,
        description="The largest params, result or error text of one command, as stored JSON.",
    )
    batch_max_events: int = Field(
        default=5_000,
        ge=1,
        le=100_000,
        description="Events that one statement carries; a larger batch becomes several.",
    )
    group_commit_ms: float = Field(
        default=1.0,
        ge=0,
        le=1_000,
        description="Milliseconds for which a single call waits for company while others commit.",
    )
    timeline_keep_months: int = Field(
        default=13,
        ge=1,
        le=1_200,
        description="Months of timeline that are kept; older partitions are dropped whole.",
    )
    worker_capacity: int = Field(
        default=2_000,
        ge=1,
        le=100_000,
        description="Executions that one process runs at once.",
    )
    worker_lost_after_s: float = Field(
        default=5.0,
        ge=1,
        le=3_600,
        description="Seconds without a breath after which a worker's executions are taken from it.",
    )
    drain_s: float = Field(
        default=8.0,
        ge=0,
        le=3_600,
        description="Seconds in which what runs may end when a process is asked to leave; "
        "what has not ended by then is queued again.",
    )
    base_backoff_s: float = Field(
        default=2.0,
        ge=0.001,
        le=86_400,
        description="Seconds before the first retry; each further one waits twice as long.",
    )
    max_backoff_s: float = Field(
        default=30.0,
        ge=0.001,
        le=366 * 86_400,
        description="The longest wait before a retry, in seconds.",
    )
    backoff_jitter: Literal["full", "seconds"] = Field(
        default="full",
        description="What chance does to the wait: `full` spreads it over all of it, `seconds` "
        "adds up to one second.",
    )
    host: str = Field(default="127.0.0.1", description="The address that the API listens on.")
    port: int = Field(default=8470, ge=0, le=65_535, description="The port that it listens on.")
    admin_key: SecretStr | None = Field(
        default=None,
        description="A key for the API that is always an admin's: at least 32 printable "
        "characters. When unset, the first start makes one.",
    )
    session_hours: float = Field(
        default=12.0,
        ge=0.001,
        le=366 * 24,
        description="Hours after which a browser that has logged in has to do so again.",
    )
    webhook_secrets: SecretStr | None = Field(
        default=None,
        description="What webhooks are signed with: whsec_... , the newest first, "
        "separated by commas while they are rotated.",
    )
    body_max_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1_024,
        le=1024 * 1024 * 1024,
        description="The largest body of a request to the API.",
    )
    body_timeout_s: float = Field(
        default=15.0,
        gt=0,
        le=3_600,
        description="Seconds in which the body of a request has to be there.",
    )
    currencies: str = Field(
        default="EUR,USD,GBP,CHF,JPY,CNY,RUB",
        description="The currencies of accounts and orders, separated by commas; "
        "the first one is meant when none is named.",
    )
    commission_bp: int = Field(
        default=25,
        ge=0,
        le=10_000,
        description="What either side of a deal pays, in hundredths of a percent of its price.",
    )
    matchers: int = Field(
        default=2,
        ge=0,
        le=64,
        description="Matchers of orders that one process runs.",
    )
    simulated_network: Literal["perfect", "calm", "bad", "terrible"] = Field(
        default="calm", description="Over what kind of network simulated hosts are reached."
    )
    simulated_fleet: Path | None = Field(
        default=None,
        description="The socket of simulated hosts in a process of their own; "
        "in the worker's own when unset.",
    )
    master_key: SecretStr | None = Field(
        default=None,
        description="What the keys of agents and nodes are derived from: at least 32 printable "
        "characters, the same for all processes. When unset, the first start makes one below "
        "`ONWARD_DATA_DIR`.",
    )
    ssh_dir: Path | None = Field(
        default=None,
        description="Where the keys, certificates and `known_hosts` are that hosts are reached "
        "with over SSH; `ssh` below `ONWARD_DATA_DIR` when unset.",
    )
    ssh_agent: Path | None = Field(
        default=None, description="The socket of an SSH agent that has keys as well."
    )
    ssh_user: str = Field(
        default="onward", description="Whom to log in as where an address names nobody."
    )
    ssh_connections: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Connections over SSH that one process has open at once.",
    )
    ssh_sessions: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="Commands that run at once over one connection; the sshd of the host sets a "
        "limit as well (`MaxSessions`).",
    )
    mqtt_url: SecretStr | None = Field(
        default=None,
        description="The MQTT broker of the nodes, such as `mqtts://user:password@broker:8883`.",
    )
    mqtt_prefix: str = Field(
        default="onward", description="What the topics of the nodes begin with."
    )
    platforms: Path | None = Field(
        default=None,
        description="A TOML file that describes the third-party platforms: their addresses and "
        "their words.",
    )
    hub_url: str | None = Field(
        default=None,
        description="Where other processes reach this one, to send through the agents that are "
        "connected to it; the address that it listens on when unset.",
    )
    url: str | None = Field(
        default=None,
        description="The service that commands such as `onward hosts` talk to; the address that "
        "the API listens on when unset.",
    )
    key: SecretStr | None = Field(
        default=None,
        description="The key that they show to it. When unset, and the service is on this machine, "
        "it is the one that the first start made.",
    )
    config: Path | None = Field(
        default=None,
        description="The file of contexts: several services, each with its address and where its "
        "key is; `config.toml` in the user's own configuration directory when unset.",
    )
    context: str | None = Field(
        default=None,
        description="The context that commands use; the current one of that file when unset.",
    )
