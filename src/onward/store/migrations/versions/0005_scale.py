"""What many processes share out among them."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0005.sql`."""
    run_file("0005.sql")
