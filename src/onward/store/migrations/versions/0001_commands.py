"""Commands, their timeline, and the law that moves them."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0001.sql`."""
    run_file("0001.sql")
