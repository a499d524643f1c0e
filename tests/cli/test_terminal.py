"""Before a real terminal: what is asked, what moves, what Ctrl-C does."""

from __future__ import annotations

import os
import re

from onward.cli import deciding, planned
from onward.cli.client import Client
from onward.cli.exits import Exit, Leaving
from tests.cli.crew import Crew, seated
from tests.cli.running import folder_for_servers, on_database, onward_up, settled, until
from tests.databases import copied

PING = ("run", "--type", "PING")
MANY = (*PING, "--on", "has zone")


def newest(crew: Crew) -> int:
    return int(crew.ok("jobs", "--limit", "1", "-q").said)


def test_somebody_is_asked_above_the_limit_and_may_say_no(crew: Crew):
    crew.job("--host", "db1", "--type", "PING")
    before = newest(crew)
    with seated(MANY, crew.environment("ann")) as seat:
        seat.until(r"Run it on 13 hosts\? \[y/N\]: ")
        seat.type("n")
        assert seat.left() == 5, seat.seen
    assert "Nothing was done." in seat.seen
    assert newest(crew) == before


def test_somebody_who_says_yes_sees_it_move_and_end(crew: Crew):
    with seated(MANY, crew.environment("ann")) as seat:
        seat.until(r"Run it on 13 hosts\?")
        seat.type("y")
        assert seat.left() == 0, seat.seen
    assert re.search(r"Job \d+ is .*FINISHED.*: 13 of 13 hosts: 13 SUCCESS\.", seat.seen)
    assert "\x1b[32mFINISHED\x1b[0m" in seat.seen, "in colour"


def test_for_very_many_hosts_their_number_has_to_be_typed(crew: Crew):
    names = crew.folder / "many.csv"
    names.write_text("name,role\n" + "".join(f"many{n},many\n" for n in range(120)))
    crew.ok("hosts", "import", str(names))
    words = (*PING, "--on", "role=many")
    for typed, code in (("y", 5), ("120", 0)):
        with seated(words, crew.environment("ann")) as seat:
            seat.until("type 120 to go on")
            seat.type(typed)
            assert seat.left() == code, seat.seen


def test_whoever_said_yes_to_another_plan_is_asked_for_the_new_number(crew: Crew):
    """A host is blocked while somebody is asked: what is confirmed next is as large as before."""
    names = crew.folder / "flock.csv"
    names.write_text("name,role\n" + "".join(f"flock{n},flock\n" for n in range(120)))
    crew.ok("hosts", "import", str(names))
    with seated((*PING, "--on", "role=flock"), crew.environment("ann")) as seat:
        seat.until("type 120 to go on")
        crew.ok("blocks", "add", "PING", "--host", "flock1", "--reason", "just now")
        seat.type("120")
        seat.until("Run it as it is now on 119 hosts: type 119 to go on")
        seat.type("y")
        assert seat.left() == 5, seat.seen


def test_no_input_is_as_without_a_terminal(crew: Crew):
    with seated((*MANY, "--no-input"), crew.environment("ann")) as seat:
        assert seat.left() == 2, seat.seen
    assert "then say --yes." in seat.seen


def test_ctrl_c_at_the_question_does_nothing(crew: Crew):
    crew.job("--host", "db1", "--type", "PING")
    before = newest(crew)
    with seated(MANY, crew.environment("ann")) as seat:
        seat.until(r"\[y/N\]: ")
        assert seat.give_up() == 130, seat.seen
    assert "Traceback" not in seat.seen
    assert newest(crew) == before


def test_ctrl_c_stops_watching_and_the_job_goes_on(crew: Crew):
    words = (*PING, "--host", "db1", "--param", "sleep_s:=3")
    with seated(words, crew.environment("ann")) as seat:
        seat.until("RUNNING")
        seat.interrupt()
        assert seat.left() == 130, seat.seen
    job = newest(crew)
    assert f"job {job} goes on. `onward jobs watch {job}` comes back to it." in seat.seen
    assert "Traceback" not in seat.seen
    with crew.up.client() as http:
        until(lambda: settled(http, job) == 1)
        assert http.get(f"/jobs/{job}").json()["counts"] == {"SUCCESS": 1}


def test_a_bar_moves_and_failures_stand_above_it(crew: Crew):
    words = (*MANY, "--yes", "--param", "exit_code:=7")
    with seated(words, crew.environment("ann")) as seat:
        assert seat.left() == 3, seat.seen
    assert "\x1b[31mFAILED\x1b[0m" in seat.seen
    assert re.search(r"job \d+ .*━", seat.seen), "there is a bar"


def test_data_stays_apart_from_what_moves(crew: Crew):
    """Progress is on the terminal while the data goes into a pipe, without colours."""
    reading, writing = os.pipe()
    words = (*PING, "--host", "db1", "--param", "lines:=1")
    with seated(words, crew.environment("ann"), stdout=writing) as seat:
        os.close(writing)
        assert seat.left() == 0, seat.seen
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert re.fullmatch(r"(?s).*Job \d+ is FINISHED: 1 of 1 host: 1 SUCCESS\.\n", said)
    assert "\x1b" not in said
    assert "is submitted" in seat.seen


def test_a_dumb_terminal_and_no_color_are_respected(crew: Crew):
    surroundings = crew.environment("ann")
    for changes in ({"TERM": "dumb"}, {"NO_COLOR": "1"}):
        with seated(("types",), {**surroundings, **changes}) as seat:
            assert seat.left() == 0
        assert "\x1b" not in seat.seen, changes
    with seated((*PING, "--host", "db1"), {**surroundings, "TERM": "dumb"}) as seat:
        assert seat.left() == 0
    assert "\x1b" not in seat.seen


def test_a_table_fits_the_terminal(crew: Crew):
    with seated(("jobs",), {**crew.environment("ann"), "COLUMNS": "60"}) as seat:
        assert seat.left() == 0
    shown = re.sub(r"\x1b\[\d+m", "", seat.seen)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 60
    assert "…" in shown


def test_an_approver_sees_the_plan_and_decides_about_just_that(crew: Crew):
    job = str(crew.job("--host", "db1", "--type", "DEPLOY", "--param", "version=1"))
    with seated(("approvals", "approve", job), crew.environment("bob")) as seat:
        seat.until(r"Approve it\? \[y/N\]: ")
        assert "DEPLOY version=1" in seat.seen
        crew.ok("jobs", "edit", job, "--param", "version=2", who="ann")
        seat.type("y")
        seat.until(r"Approve it as it is now\? \[y/N\]: ")
        assert "It changed under you:" in seat.seen
        assert "{'version': '1'} → {'version': '2'}" in seat.seen
        assert crew.ok("jobs", "show", job, "--json").json["decided_by"] is None
        seat.type("y")
        assert seat.left() == 0, seat.seen
    assert crew.ok("jobs", "show", job, "--json").json["decided_by"] == "bob"


def test_without_a_terminal_a_plan_that_changed_is_a_conflict(crew: Crew, monkeypatch):
    """The job is changed after it was shown, before it is approved: forced, not slept for."""
    job = str(crew.job("--host", "db1", "--type", "DEPLOY"))
    shown = planned.show_job_plan

    def changed_then(*given: object) -> None:
        shown(*given)  # type: ignore[arg-type]  # as it was called
        crew.ok("jobs", "edit", job, "--param", "version=2", who="ann")

    monkeypatch.setattr(deciding, "show_job_plan", changed_then)
    ended = crew.run("approvals", "approve", job, "--yes", who="bob")
    assert ended.code == 6
    assert "It changed under you:" in ended.told
    assert f"`onward jobs plan {job}`" in ended.told
    assert crew.ok("jobs", "show", job, "--json").json["decided_by"] is None


def test_logs_are_followed_to_the_end(crew: Crew):
    words = ("--host", "db1", "--type", "PING", "--param", "sleep_s:=1", "--param", "lines:=2")
    job = crew.job(*words, "--param", "text=tick")
    (row,) = crew.ok("executions", "--job", str(job), "--json", "execution_id").json
    follow = ("executions", "logs", str(row["execution_id"]), "--follow")
    with seated(follow, crew.environment("vic")) as seat:
        assert seat.left() == 0, seat.seen
    assert seat.seen.count("tick") == 2


def test_logs_are_followed_also_while_the_service_cannot_answer(crew: Crew, monkeypatch):
    job = crew.job("--host", "db1", "--type", "PING", "--param", "lines:=1")
    (row,) = crew.ok("executions", "--job", str(job), "--json", "execution_id").json
    get, left = Client.get, [Leaving(Exit.SERVICE_AWAY, "Not now.")]

    def away_first(self: Client, path: str, **params: str) -> dict[str, object]:
        if path.endswith("/logs") and left:
            raise left.pop()
        return get(self, path, **params)

    monkeypatch.setattr(Client, "get", away_first)
    crew.ok("executions", "logs", str(row["execution_id"]), "--follow")
    assert not left


def test_workers_are_watched_until_ctrl_c(crew: Crew):
    with seated(("workers", "watch"), crew.environment("vic")) as seat:
        seat.until("breathed")
        seat.interrupt()
        assert seat.left() == 130, seat.seen
    assert "Traceback" not in seat.seen


def test_a_service_that_is_away_for_a_while_is_waited_for(server_url: str, template: str):
    """It leaves in the middle, and comes back on the same address: the watching goes on."""
    with (
        folder_for_servers() as folder,
        copied(server_url, template) as url,
        onward_up(folder, **on_database(url)) as up,
    ):
        port = up.address.rpartition(":")[2]
        crew = Crew(up, folder, {"root": up.key})
        crew.ok("hosts", "add", "h1")
        job = crew.job("--host", "h1", "--type", "DEPLOY", who="root")
        watching = ("jobs", "watch", str(job))
        with seated(watching, crew.environment("root")) as seat:
            seat.until("waits for approval")
            up.stop()
            seat.until("does not answer; the job goes on without us")
            with onward_up(folder, "--port", port, **on_database(url)) as again:
                seat.until("answers again")
                with again.client() as http:
                    assert http.post(f"/jobs/{job}/cancel").status_code == 200
                assert seat.left() == 5, seat.seen
