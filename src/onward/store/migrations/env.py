"""Alembic's entry: revisions are raw SQL and are only ever rendered, never run, by Alembic.

`onward.store.schema` runs the rendered script itself, in one transaction and under one advisory
lock; `onward db upgrade --sql` prints the same script for a DBA.
"""

from __future__ import annotations

from alembic import context

context.configure(
    dialect_name="postgresql",
    version_table="schema_revision",
    version_table_schema="onward",
    transactional_ddl=False,  # the caller opens the transaction
)
context.run_migrations()
