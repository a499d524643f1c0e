"""Everything that can be configured, read once from the environment (`ONWARD_…`).

No other module reads the environment. The object is frozen and handed down.
"""

from __future__ import annotations

from pathlib import Path

import platformdirs
from pydantic import Field
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
