"""Hosts, jobs, executions, and what decides when one may run."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0002.sql`."""
    run_file("0002.sql")
