"""Keys, what is told of jobs, and an order in which changes can be followed."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0003.sql`."""
    run_file("0003.sql")
