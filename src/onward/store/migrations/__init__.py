"""The revisions of the schema: `versions/NNNN_*.py` give the order, `NNNN.sql` the SQL."""

from __future__ import annotations

from importlib import resources

from alembic import op


def run_file(name: str) -> None:
    """Put one SQL file into the script that is being rendered."""
    text = resources.files(__package__).joinpath("versions", name).read_text(encoding="utf-8")
    # Straight into the output: Alembic's own `op.execute` would read colons as parameters.
    op.get_context().impl.static_output(text)
