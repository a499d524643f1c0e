"""Accounts, the ledger behind them, and the book of orders."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0004.sql`."""
    run_file("0004.sql")
