"""What screens show of many: equal outputs, jobs that are open, how many ended when."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0008.sql`."""
    run_file("0008.sql")
