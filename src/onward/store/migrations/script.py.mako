"""${message}."""

from __future__ import annotations

from onward.store.migrations import run_file

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_file("${up_revision}.sql")
