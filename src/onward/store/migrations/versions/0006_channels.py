"""Ways to real hosts: what is run there, their keys, and what is on its way to them."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply `0006.sql`."""
    run_file("0006.sql")
