"""What can be wrong with a database, and which checks of the doctor notice."""

from __future__ import annotations

import re
from typing import NamedTuple


class Case(NamedTuple):
    """What is done to the tables, and which checks notice."""

    planted: str
    found: set[str]
    repaired: bool = True  # or left to people


CASES: dict[str, Case] = {
    "an end in the queue": Case(
        "INSERT INTO queue SELECT host_id, id, job_id, read_only, now() "
        "FROM executions WHERE id = {execution SUCCESS}",
        {"queue"},
    ),
    "nobody in the queue": Case("INSERT INTO queue VALUES (1, -7, 1, false, now())", {"queue"}),
    "another time in the queue": Case(
        "UPDATE queue SET due_at = now() WHERE execution_id = {execution QUEUED}", {"queue"}
    ),
    "another host in the queue": Case(
        "UPDATE queue SET host_id = 999 WHERE execution_id = {execution QUEUED}",
        {"queue", "queued"},
    ),
    "waiting, and in no queue": Case(
        "DELETE FROM queue WHERE execution_id = {execution QUEUED}", {"queued"}
    ),
    "an emptied queue": Case("DELETE FROM queue", {"queued"}),
    "an end that runs": Case(
        "INSERT INTO runs SELECT host_id, id, id, true, (SELECT min(id) FROM workers), "
        "now() + interval '1 day' FROM executions WHERE id = {execution SUCCESS}",
        {"runs"},
    ),
    "another deadline of a run": Case(
        "UPDATE runs SET deadline_at = now() + interval '1 day' "
        "WHERE execution_id = {execution RUNNING}",
        {"runs"},
    ),
    "another place of a run": Case("UPDATE runs SET place = 7 WHERE place = 0", {"runs"}),
    "running, and no run": Case(
        "DELETE FROM runs WHERE execution_id = {execution RUNNING}", {"running"}
    ),
    "a success among the failures": Case(
        "INSERT INTO failures SELECT job_id, host_id, id, 'FAILED' "
        "FROM executions WHERE id = {execution SUCCESS}",
        {"failures"},
    ),
    "a failure of another kind": Case(
        "UPDATE failures SET status = 'BLOCKED' WHERE status = 'FAILED'", {"failures"}
    ),
    "a failure that is not known": Case("DELETE FROM failures WHERE status = 'FAILED'", {"failed"}),
    "one too many in the counters": Case(
        "INSERT INTO job_counts SELECT min(id), 'SUCCESS', 1 FROM jobs", {"counters"}
    ),
    "counters that are gone": Case("DELETE FROM job_counts", {"counters"}),
    "counters of no job": Case("INSERT INTO job_counts VALUES (-7, 'NEW', 3)", {"counters"}),
    "a job for more hosts": Case(
        "UPDATE jobs SET total = total + 1 WHERE external_id = 'ended'", {"totals"}, False
    ),
    "an execution that is gone": Case(
        "DELETE FROM executions WHERE status = 'SUCCESS'", {"totals", "counters"}, False
    ),
    "no time of the end": Case(
        "UPDATE executions SET finished_at = NULL WHERE id = {execution SUCCESS}",
        {"execution-clocks"},
    ),
    "a run without a deadline": Case(
        "UPDATE executions SET deadline_at = NULL WHERE id = {execution RUNNING}",
        {"execution-clocks", "runs"},
    ),
    "waiting for no time": Case(
        "UPDATE executions SET due_at = NULL WHERE id = {execution QUEUED}",
        {"execution-clocks", "queue"},
    ),
    "new for no time": Case(
        "UPDATE executions SET due_at = NULL WHERE id = {execution NEW}", {"execution-clocks"}
    ),
    "a command that nobody watches": Case(
        "UPDATE commands SET deadline_at = NULL WHERE cmd_id = {command ACK}",
        {"command-clocks"},
    ),
    "a command with two clocks": Case(
        "UPDATE commands SET deadline_at = now() + interval '1 day' "
        "WHERE cmd_id = {command DELIVERED}",
        {"command-clocks"},
    ),
    "a command that ended at no time": Case(
        "UPDATE commands SET finished_at = NULL WHERE cmd_id = {command DONE}",
        {"command-clocks"},
    ),
    "an order that ended at no time": Case(
        "UPDATE orders SET finished_at = NULL WHERE status = 'FILLED'", {"order-ends"}, False
    ),
    "a status that there is not": Case(
        "ALTER TABLE orders DROP CONSTRAINT orders_status_known;"
        "UPDATE orders SET status = 'ODD' WHERE status = 'OPEN'",
        {"statuses", "constraints", "order-timelines"},
        False,
    ),
    "two exclusive runs on a host": Case(
        "UPDATE executions SET status = 'RUNNING', due_at = NULL, "
        "deadline_at = now() + interval '1 day' WHERE id = (SELECT min(q.execution_id) "
        "FROM queue q JOIN runs r USING (host_id) WHERE NOT r.read_only)",
        {"one-at-a-time", "queue", "running", "counters", "execution-timelines"},
        False,
    ),
    "an execution on no host": Case(
        "UPDATE executions SET host_id = 999 WHERE id = {execution SUCCESS}", {"hosts"}, False
    ),
    "planned before it was approved": Case(
        "SELECT record_executions_v1(ARRAY[(SELECT min(e.id) FROM executions e JOIN jobs j "
        "ON j.id = e.job_id WHERE j.external_id = 'asks')], ARRAY['plan'], NULL, NULL, NULL, "
        "ARRAY[1], NULL)",
        {"unapproved"},
        False,
    ),
    "rejected, and open": Case(
        "UPDATE jobs SET approval_state = 'REJECTED', decided_by = 'bob', decided_at = now() "
        "WHERE external_id = 'asks'",
        {"rejected"},
        False,
    ),
    "approved by who asked for it": Case(
        "ALTER TABLE jobs DROP CONSTRAINT jobs_check;"
        "UPDATE jobs SET decided_by = requested_by WHERE external_id = 'approved'",
        {"four-eyes"},
        False,
    ),
    "approved by who changed it": Case(
        "ALTER TABLE jobs DROP CONSTRAINT jobs_check1;"
        "UPDATE jobs SET decided_by = 'cyd' WHERE external_id = 'approved'",
        {"four-eyes"},
        False,
    ),
    "approved by nobody": Case(
        "UPDATE jobs SET decided_by = NULL WHERE external_id = 'approved'", {"four-eyes"}, False
    ),
    "cancelled, and nobody looks after it": Case(
        "UPDATE jobs SET cancelled_at = now() WHERE external_id = 'waits'", {"cancelling"}
    ),
    "being cancelled by nobody": Case(
        "UPDATE jobs SET cancel_open = true WHERE external_id = 'waits'", {"cancelling"}, False
    ),
    "finished, and open": Case(
        "UPDATE jobs SET finished_at = now() WHERE external_id = 'waits'", {"finished"}
    ),
    "planned, and some are new": Case(
        "UPDATE jobs SET planned = true WHERE external_id = 'limited'", {"planner"}
    ),
    "passed over by the planner": Case(
        "UPDATE jobs SET planned_host = 5 WHERE external_id = 'limited'", {"planner"}
    ),
    "planned by nobody": Case(
        "UPDATE jobs SET approval_state = 'APPROVED', decided_by = 'bob', decided_at = now(), "
        "updated_at = now() - interval '2 minutes' WHERE external_id = 'asks';"
        "UPDATE executions SET updated_at = now() - interval '2 minutes'",
        {"planned"},
    ),
    "a move of an execution that is not told": Case(
        "DELETE FROM execution_timeline "
        "WHERE execution_id = {execution SUCCESS} AND event = 'succeed'",
        {"execution-timelines"},
        False,
    ),
    "a command of which nothing is told": Case(
        "DELETE FROM timeline WHERE cmd_id = {command DONE}",
        {"command-timelines"},
        False,
    ),
    "a move of an order that is not told": Case(
        "DELETE FROM order_timeline WHERE to_status = 'FILLED'", {"order-timelines"}, False
    ),
    "a sequence that was set back": Case("SELECT setval('epochs', 1)", {"epochs"}),
    "a late result of a success": Case(
        "UPDATE executions SET late_result = '{\"event\": \"succeed\"}' WHERE status = 'SUCCESS'",
        {"late-results"},
        False,
    ),
    "a late result that is none": Case(
        "UPDATE executions SET late_result = '{\"event\": \"cancel\"}' WHERE status = 'TIMEOUT'",
        {"late-results"},
        False,
    ),
    "a word that nobody hands on": Case(
        "INSERT INTO outbox (topic, job_id, created_at) "
        "VALUES ('plan_job', 1, now() - interval '2 minutes')",
        {"outbox"},
        False,
    ),
    "a worker that is dead": Case(
        "UPDATE workers SET beat_at = now() - interval '1 hour'", {"lost-runs", "workers"}, False
    ),
    "a worker that has left": Case(
        "UPDATE workers SET stopped_at = now() - interval '1 hour'", {"lost-runs", "workers"}, False
    ),
    "a worker that is stuck": Case(
        "UPDATE workers SET progress_at = now() - interval '1 hour'", {"workers"}, False
    ),
    "runs past their deadline": Case(
        "UPDATE runs SET deadline_at = now() - interval '1 hour';"
        "UPDATE executions e SET deadline_at = r.deadline_at "
        "FROM runs r WHERE r.execution_id = e.id",
        {"overdue-runs"},
    ),
    "commands past their deadline": Case(
        "UPDATE commands SET deadline_at = now() - interval '1 hour' WHERE deadline_at IS NOT NULL",
        {"overdue-commands"},
    ),
    "commands that somebody should look at": Case(
        "UPDATE commands SET due_at = now() - interval '1 hour' WHERE due_at IS NOT NULL",
        {"due-commands"},
        False,
    ),
    "an end that is to be handed over": Case(
        "INSERT INTO sendings (cmd_id, channel, send_at, doubt) "
        "SELECT {command DONE}, 'mqtt', now() - interval '1 hour', true",
        {"sendings"},
    ),
    "nothing that is to be handed over": Case(
        "INSERT INTO sendings (cmd_id, channel, send_at, doubt) "
        "VALUES (gen_random_uuid(), 'mqtt', now() - interval '1 hour', true)",
        {"sendings"},
    ),
    "something that nobody hands over": Case(
        "INSERT INTO sendings (cmd_id, channel, send_at, doubt) "
        "SELECT {command QUEUED}, 'mqtt', now() - interval '1 hour', true",
        {"unsent"},
        False,
    ),
    "an early callback of long ago": Case(
        "INSERT INTO early_callbacks (task_id, node, status, at) "
        "VALUES ('7', 'pump', '{}', now() - interval '3 days')",
        {"early-callbacks"},
    ),
    "an agent of a process that is gone": Case(
        "INSERT INTO agents (host_id, hub_id) VALUES (1, 999)", {"agents"}, False
    ),
    "a token that ended long ago": Case(
        "INSERT INTO enrolments (digest, host_id, made_by, expires_at) "
        "VALUES ('x', 1, 'ann', now() - interval '2 days')",
        {"enrolments"},
    ),
    "a session that ended long ago": Case(
        "INSERT INTO api_keys (name, person, role, hash) "
        "VALUES ('k', 'ann', 'viewer', sha256('k'));"
        "INSERT INTO sessions (digest, key_id, expires_at) "
        "SELECT sha256('s'), id, now() - interval '2 days' FROM api_keys",
        {"sessions"},
    ),
    "another law": Case("UPDATE law SET target = 'NEW' WHERE lifecycle = 'execution'", {"law"}),
    "a law of nobody's": Case(
        "INSERT INTO law VALUES ('odd', 'e', 's', 'OK', 't', 'none', false, false)", {"law"}
    ),
    "another function": Case(
        "CREATE OR REPLACE FUNCTION onward.commission_v1(p_price bigint, p_bp integer) "
        "RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 0::bigint'",
        {"functions"},
    ),
    "another program's signature": Case("UPDATE derived SET digest = 'x'", {"functions"}),
    "no constraint": Case(
        "ALTER TABLE executions DROP CONSTRAINT executions_status_known", {"constraints"}
    ),
    "no table": Case("DROP TABLE activity", {"tables"}, False),
    "no index": Case("DROP INDEX executions_host", {"tables"}, False),
    "no next month": Case(
        "DO $$ BEGIN EXECUTE 'DROP TABLE timeline_' "
        "|| to_char(date_trunc('month', now()) + interval '1 month', 'YYYYMM'); END $$",
        {"months"},
    ),
    "a month that there is not": Case(
        "INSERT INTO timeline (at, cmd_id, event, verdict) "
        "VALUES ('2019-05-05', gen_random_uuid(), 'x', 'OK')",
        {"default-partitions"},
    ),
    "no vacuum": Case("ALTER TABLE queue SET (autovacuum_enabled = false)", {"vacuum"}, False),
}


def written(fault: str) -> str:
    """Fill in the first execution or command in a status, where one is meant."""
    fault = re.sub(
        r"\{execution (\w+)\}", r"(SELECT min(id) FROM executions WHERE status = '\1')", fault
    )
    return re.sub(
        r"\{command (\w+)\}",
        r"(SELECT min(cmd_id::text)::uuid FROM commands WHERE status = '\1')",
        fault,
    )
