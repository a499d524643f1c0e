"""Sessions of browsers, and who did what."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0007.sql`."""
    run_file("0007.sql")
