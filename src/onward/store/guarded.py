"""Which tables have a lifecycle, and how the guarded path is written for each of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from onward.store.queries import read_sql, rendered, statuses_literal


@dataclass(frozen=True, slots=True)
class GuardedTable:
    """What the form `guarded.sql` needs to know about a table."""

    function: str
    table: str
    key: str
    key_type: str
    lifecycle: str  # SQL: the column that names it, or the name that all rows share
    timeline: str
    timeline_key: str
    settles: str  # file in sql/: what a move sets besides status, epoch, version and the end
    returned: str = ""  # SQL: columns of a moved row that `afterwards` needs
    afterwards: str = ""  # file in sql/: what a move does besides, as one more CTE

    def sql(self) -> str:
        """Write the guarded path of this table."""
        text = read_sql("guarded.sql")
        for form, filled in (
            ("function", self.function),
            ("table", self.table),
            ("key", self.key),
            ("key type", self.key_type),
            ("lifecycle", self.lifecycle),
            ("timeline", self.timeline),
            ("timeline key", self.timeline_key),
            ("settles", read_sql(self.settles).strip()),
            ("returned", self.returned),
            ("afterwards", read_sql(self.afterwards).rstrip() if self.afterwards else ""),
        ):
            text = text.replace(f"<<{form}>>", filled)
        return rendered(text)

    def constraint(self) -> str:
        """Write the rule that a row is in a status which its lifecycle has.

        To make it, all rows are read while nobody else may touch them: one that is there already,
        as its comment says, is left alone.
        """
        name = self.lifecycle.removeprefix("c.")
        rule = f"CHECK ({name} || '.' || status = ANY ({statuses_literal('states')}))"
        known = hashlib.sha256(rule.encode()).hexdigest()
        return f"""DO $rule$
BEGIN
    IF (SELECT obj_description(oid, 'pg_constraint')
          FROM pg_constraint
         WHERE conrelid = 'onward.{self.table}'::regclass
           AND conname = '{self.table}_status_known'
           AND convalidated) IS DISTINCT FROM '{known}' THEN
        ALTER TABLE onward.{self.table}
            DROP CONSTRAINT IF EXISTS {self.table}_status_known,
            ADD CONSTRAINT {self.table}_status_known
                {rule};
        COMMENT ON CONSTRAINT {self.table}_status_known ON onward.{self.table} IS '{known}';
    END IF;
END $rule$;"""  # noqa: S608 - rendered from the law, no caller's text in it


COMMANDS = GuardedTable(
    function="record_events_v1",
    table="commands",
    key="cmd_id",
    key_type="uuid",
    lifecycle="c.lifecycle",
    timeline="timeline",
    timeline_key="cmd_id",
    settles="commands_settles.sql",
)

EXECUTIONS = GuardedTable(
    function="record_executions_v1",
    table="executions",
    key="id",
    key_type="bigint",
    lifecycle="'execution'",
    timeline="execution_timeline",
    timeline_key="execution_id",
    settles="executions_settles.sql",
    returned=", c.id, c.job_id, c.host_id, c.read_only, c.due_at, c.deadline_at, c.worker_id",
    afterwards="executions_afterwards.sql",
)

ORDERS = GuardedTable(
    function="record_orders_v1",
    table="orders",
    key="id",
    key_type="bigint",
    lifecycle="'order'",
    timeline="order_timeline",
    timeline_key="order_id",
    settles="orders_settles.sql",
)

GUARDED = (COMMANDS, EXECUTIONS, ORDERS)
