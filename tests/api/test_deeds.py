"""What is done with jobs: decided by somebody else, changed, cancelled, held, and run again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx2
import pytest

from onward.store import jobs as store
from onward.wiring import Onward
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.api.test_foundation_conditional import IF_MATCH
from tests.api.test_jobs import SEEN, get, waiting
from tests.present import seen
from tests.proof_table import Tried

TELLS_HOW_IT_STANDS = {
    *("job_id", "state", "allowed", "approval_state", "version", "counts"),
    *("decided_by", "decided_at", "decision_reason", "cancelled_by", "cancelled_at"),
}


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


def stands(answer: httpx2.Response, code: str = "job-stands-otherwise") -> dict[str, Any]:
    """The refusal of a deed: it says how the job stands, and what may be done with it."""
    problem = told(answer, 409, code)
    assert problem.keys() >= TELLS_HOW_IT_STANDS
    assert answer.headers["etag"] == f'"{problem["version"]}"'
    return problem


# Approval


async def test_an_approval_starts_the_plan_that_was_seen_and_says_who_when_and_why(
    fleet: Fleet, people: People
):
    job_id = await waiting(fleet, people)
    seen = await people.bob.get(f"/jobs/{job_id}/plan")
    assert seen.json()["job"]["state"] == "WAITING_FOR_APPROVAL"
    assert seen.json()["job"]["allowed"] == ["approve", "reject", "edit", "cancel", "pause"]
    assert await fleet.queue(job_id) == []
    answer = await people.bob.post(
        f"/jobs/{job_id}/approve",
        json={"reason": "seen in staging"},
        headers={"If-Match": seen.headers["etag"]},
    )
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    job = answer.json()
    assert (job["state"], job["approval_state"]) == ("UNDER_WAY", "APPROVED")
    assert (job["decided_by"], job["decision_reason"]) == ("bob", "seen in staging")
    assert datetime.fromisoformat(job["decided_at"]).tzinfo is not None
    assert await get(people.vic, f"/jobs/{job_id}") == job
    timeline = (await get(people.vic, f"/jobs/{job_id}/timeline"))["items"]
    assert [(event["event"], event["by"]) for event in timeline] == [
        ("submit", "ann"),
        ("approve", "bob"),
    ]
    assert timeline[1]["detail"] == {"reason": "seen in staging"}
    assert len(await fleet.queue(job_id)) == 2


async def test_a_rejection_cancels_whatever_has_not_begun(fleet: Fleet, people: People):
    job_id = await waiting(fleet, people, hosts=3)
    answer = await people.bob.post(
        f"/jobs/{job_id}/reject", json={"reason": "not on a Friday"}, headers=SEEN
    )
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert (job["state"], job["approval_state"]) == ("TURNED_DOWN", "REJECTED")
    assert (job["counts"], job["decision_reason"]) == ({"CANCELLED": 3}, "not on a Friday")
    assert await fleet.queue(job_id) == []
    page = await get(people.vic, f"/jobs/{job_id}/executions")
    timeline = await get(people.vic, f"/executions/{page['items'][0]['execution_id']}/timeline")
    assert [(event["event"], event["source"]) for event in timeline["items"]] == [
        ("cancel", "rejected by bob")
    ]


@pytest.mark.parametrize("deed", ["approve", "reject"])
async def test_nobody_decides_about_their_own_job_with_whatever_key(
    fleet: Fleet, people: People, deed: str
):
    job_id = await waiting(fleet, people)
    answer = await people.ann_approves.post(f"/jobs/{job_id}/{deed}", headers=SEEN)
    told(answer, 403, "four-eyes")
    by_root = await fleet.submit(people.root, command_type="deploy")
    told(await people.root.post(f"/jobs/{by_root}/{deed}", headers=SEEN), 403, "four-eyes")
    for untouched in (job_id, by_root):
        job = await get(people.vic, f"/jobs/{untouched}")
        assert (job["version"], job["state"]) == (1, "WAITING_FOR_APPROVAL")
    assert (await people.root.post(f"/jobs/{job_id}/{deed}", headers=SEEN)).status_code == 200


async def test_whoever_changed_a_plan_does_not_decide_about_it(fleet: Fleet, people: People):
    job_id = await waiting(fleet, people)
    edited = await people.root.patch(f"/jobs/{job_id}", json={"params": {"b": 2}}, headers=SEEN)
    assert edited.json()["edited_by"] == ["root"]
    version = {"If-Match": edited.headers["etag"]}
    told(await people.root.post(f"/jobs/{job_id}/approve", headers=version), 403, "four-eyes")
    assert (await people.bob.post(f"/jobs/{job_id}/approve", headers=version)).status_code == 200


async def test_an_approver_of_a_plan_that_was_changed_is_told_that_it_was(
    fleet: Fleet, people: People
):
    job_id = await waiting(fleet, people)
    seen = (await people.bob.get(f"/jobs/{job_id}")).headers["etag"]
    edited = await people.ann.patch(
        f"/jobs/{job_id}",
        json={"params": {"b": None}, "max_concurrency": None},
        headers={"If-Match": seen},
    )
    assert (edited.status_code, edited.headers["etag"]) == (200, '"2"'), edited.text
    assert edited.json()["params"] == {"b": None}
    for deed in ("approve", "reject"):
        refused = await people.bob.post(f"/jobs/{job_id}/{deed}", headers={"If-Match": seen})
        problem = told(refused, 412, "stale")
        assert (refused.headers["etag"], problem["etag"], problem["version"]) == ('"2"', '"2"', 2)
    timeline = (await get(people.bob, f"/jobs/{job_id}/timeline"))["items"]
    assert timeline[1]["event"] == "edit"
    assert timeline[1]["detail"] == {"params": {"b": None}, "max_concurrency": None}
    present = {"If-Match": '"2"'}
    assert (await people.bob.post(f"/jobs/{job_id}/approve", headers=present)).status_code == 200


async def test_what_was_decided_is_told_to_whoever_comes_second(fleet: Fleet, people: People):
    for first, second, state in (
        ("approve", "reject", "APPROVED"),
        ("reject", "approve", "REJECTED"),
    ):
        job_id = await waiting(fleet, people)
        await people.bob.post(f"/jobs/{job_id}/{first}", json={"reason": "so"}, headers=SEEN)
        for version in ('"1"', '"2"'):
            answer = await people.eve.post(
                f"/jobs/{job_id}/{second}", headers={"If-Match": version}
            )
            problem = stands(answer)
            assert problem["approval_state"] == state
            assert (problem["decided_by"], problem["decision_reason"]) == ("bob", "so")
            assert not {"approve", "reject", "edit"} & set(problem["allowed"])
        edit = await people.ann.patch(f"/jobs/{job_id}", json={"params": {}}, headers=SEEN)
        assert stands(edit)["decided_by"] == "bob"


async def test_a_job_that_needs_no_approval_is_neither_approved_nor_changed(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    for deed in ("approve", "reject"):
        answer = await people.bob.post(f"/jobs/{job_id}/{deed}", headers=SEEN)
        assert stands(answer)["allowed"] == ["cancel", "pause"]
    stands(await people.ann.patch(f"/jobs/{job_id}", json={"params": {}}, headers=SEEN))


async def test_a_cancelled_job_is_not_decided_about_any_more(fleet: Fleet, people: People):
    job_id = await waiting(fleet, people)
    await people.ann.post(f"/jobs/{job_id}/cancel")
    problem = stands(await people.bob.post(f"/jobs/{job_id}/approve", headers={"If-Match": '"2"'}))
    assert (problem["state"], problem["cancelled_by"]) == ("STOPPED", "ann")


async def test_the_table_of_if_match_for_every_guarded_deed(
    fleet: Fleet, people: People, tried: Tried
):
    """Nothing but the one strong tag that was seen; whoever is stale is told the present one."""
    job_id = await waiting(fleet, people)
    await fleet.pool.execute("UPDATE jobs SET version = 5 WHERE id = $1", job_id)
    for name, (values, status, code) in IF_MATCH.items():
        headers = [(b"if-match", value) for value in values]
        for answer in (
            await people.bob.post(f"/jobs/{job_id}/approve", headers=headers),
            await people.bob.post(f"/jobs/{job_id}/reject", headers=headers),
            await people.ann.patch(f"/jobs/{job_id}", json={"params": {}}, headers=headers),
            await people.ann.post(f"/jobs/{job_id}/pause", headers=headers),
            await people.ann.post(f"/jobs/{job_id}/resume", headers=headers),
        ):
            told(answer, status, code)
            if status == 412:
                assert answer.headers["etag"] == '"5"', name
    assert (await get(people.vic, f"/jobs/{job_id}"))["version"] == 5
    tried("what If-Match says with a deed", 5 * len(IF_MATCH), "only the present version")


# Cancel, pause, resume


async def test_cancelling_ends_what_waits_and_asks_what_runs(fleet: Fleet, people: People):
    await fleet.hosts(4)
    job_id = await fleet.submit(people.ann, max_concurrency=3)
    claimed = await fleet.claim(job_id, at_most=2)
    answer = await people.ann.post(f"/jobs/{job_id}/cancel", json={"reason": "wrong version"})
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert (job["state"], job["still_running"]) == ("CANCELLING", 2)
    assert (job["counts"], job["cancelled_by"]) == ({"RUNNING": 2, "CANCELLED": 2}, "ann")
    assert job["allowed"] == []
    event = (await get(people.vic, f"/jobs/{job_id}/timeline"))["items"][-1]
    assert (event["event"], event["by"]) == ("cancel", "ann")
    assert event["detail"] == {"reason": "wrong version", "cancelled": 2}

    again = await people.root.post(f"/jobs/{job_id}/cancel")
    assert (again.status_code, again.json()["cancelled_by"]) == (202, "ann")

    await fleet.say(claimed[:1], "cancel")
    await fleet.say(claimed[1:], "succeed")
    job = await get(people.vic, f"/jobs/{job_id}")
    assert (job["state"], job["counts"]) == ("STOPPED", {"CANCELLED": 3, "SUCCESS": 1})
    done = await people.ann.post(f"/jobs/{job_id}/cancel")
    assert (done.status_code, done.json()["still_running"]) == (200, 0)


async def test_cancelling_what_has_not_begun_is_done_at_once(fleet: Fleet, people: People):
    await fleet.hosts(3)
    job_id = await fleet.submit(people.ann)
    await fleet.queue(job_id)
    answer = await people.ann.post(f"/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "STOPPED")
    assert answer.json()["counts"] == {"CANCELLED": 3}


async def test_more_than_one_batch_is_cancelled(
    fleet: Fleet, people: People, monkeypatch: pytest.MonkeyPatch
):
    await fleet.hosts(10)
    job_id = await fleet.submit(people.ann)
    await fleet.claim(job_id, at_most=3)
    monkeypatch.setattr(store, "_CANCEL_BATCH", 2)
    answer = await people.ann.post(f"/jobs/{job_id}/cancel")
    assert answer.json()["counts"] == {"RUNNING": 3, "CANCELLED": 7}


async def test_it_is_too_late_to_cancel_what_has_finished(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    await fleet.say(await fleet.claim(job_id), "succeed")
    problem = stands(await people.ann.post(f"/jobs/{job_id}/cancel"), "too-late")
    assert (problem["state"], problem["counts"]) == ("FINISHED", {"SUCCESS": 1})
    job = await get(people.vic, f"/jobs/{job_id}")
    assert (job["cancelled_at"], job["version"], job["allowed"]) == (None, 1, [])


async def test_a_cancelled_job_that_finished_first_is_called_finished(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await people.ann.post(f"/jobs/{job_id}/cancel")
    await fleet.say(claimed, "succeed")
    job = await get(people.vic, f"/jobs/{job_id}")
    assert (job["state"], job["cancelled_by"]) == ("FINISHED", "ann")


async def test_a_paused_job_begins_nothing_until_it_is_resumed(fleet: Fleet, people: People):
    await fleet.hosts(2)
    job_id = await fleet.submit(people.ann)
    for _ in range(2):
        headers = await seen(people.ann, f"/jobs/{job_id}")
        paused = (await people.ann.post(f"/jobs/{job_id}/pause", headers=headers)).json()
        assert (paused["state"], paused["version"]) == ("PAUSED", 2)
        assert paused["allowed"] == ["cancel", "resume"]
    assert await fleet.queue(job_id) == []
    for _ in range(2):
        headers = await seen(people.ann, f"/jobs/{job_id}")
        resumed = (await people.ann.post(f"/jobs/{job_id}/resume", headers=headers)).json()
        assert (resumed["state"], resumed["paused_at"]) == ("UNDER_WAY", None)
    assert len(await fleet.queue(job_id)) == 2
    timeline = (await get(people.vic, f"/jobs/{job_id}/timeline"))["items"]
    assert [event["event"] for event in timeline] == ["submit", "pause", "resume"]


async def test_there_is_nothing_to_hold_back_of_a_job_that_is_over(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    await fleet.say(await fleet.claim(job_id), "fail")
    headers = await seen(people.ann, f"/jobs/{job_id}")
    refused = await people.ann.post(f"/jobs/{job_id}/pause", headers=headers)
    assert stands(refused)["allowed"] == ["retry"]
    resumed = await people.ann.post(f"/jobs/{job_id}/resume", headers=headers)
    assert resumed.status_code == 200
    cancelled = await fleet.submit(people.ann)
    await people.ann.post(f"/jobs/{cancelled}/cancel")
    headers = await seen(people.ann, f"/jobs/{cancelled}")
    stands(await people.ann.post(f"/jobs/{cancelled}/pause", headers=headers))


async def test_whoever_saw_the_job_before_neither_pauses_nor_resumes_it(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    before = await seen(people.ann, f"/jobs/{job_id}")
    assert (await people.ann.post(f"/jobs/{job_id}/pause", headers=before)).status_code == 200
    for deed in ("pause", "resume"):
        late = await people.root.post(f"/jobs/{job_id}/{deed}", headers=before)
        assert told(late, 412, "stale")["version"] == 2
        assert late.headers["etag"] == '"2"'
    assert (await get(people.vic, f"/jobs/{job_id}"))["state"] == "PAUSED"


# Retry


async def failed_job(fleet: Fleet, people: People) -> int:
    """Two failed, one timed out, one was cancelled, one was blocked, one went well."""
    names = await fleet.hosts(6)
    await fleet.block(names[0])
    job_id = await fleet.submit(people.ann, params={"x": [1, {"y": None}]}, max_concurrency=5)
    claimed = await fleet.claim(job_id)
    await fleet.say(claimed[:2], "fail", cause="FAILED", exit_code=3, error="no")
    await fleet.say(claimed[2:3], "timeout", cause="TIMED_OUT")
    await fleet.say(claimed[3:], "succeed")
    await people.ann.post(f"/jobs/{job_id}/cancel")
    counts = {"FAILED": 2, "TIMEOUT": 1, "SUCCESS": 1, "BLOCKED": 1, "CANCELLED": 1}
    assert (await get(people.vic, f"/jobs/{job_id}"))["counts"] == counts
    return job_id


async def hosts_of(people: People, job_id: int) -> list[str]:
    page = await get(people.vic, f"/jobs/{job_id}/executions")
    return [item["host"].rpartition("-")[2] for item in page["items"]]


async def test_a_retry_runs_again_what_failed_and_only_that(fleet: Fleet, people: People):
    job_id = await failed_job(fleet, people)
    answer = await people.ann.post(f"/jobs/{job_id}/retry")
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert (made["total"], made["external_id"]) == (3, f"retry-of-{job_id}")
    assert answer.headers["location"] == f"/jobs/{made['job_id']}"
    assert await hosts_of(people, made["job_id"]) == ["2", "3", "4"]
    again = await get(people.vic, answer.headers["location"])
    assert (again["retry_of"], again["params"]) == (job_id, {"x": [1, {"y": None}]})
    assert (again["max_concurrency"], again["requested_by"]) == (5, "ann")
    repeat = await people.root.post(f"/jobs/{job_id}/retry")
    assert (repeat.status_code, repeat.json()) == (200, {**made, "duplicate": True})


async def test_a_retry_leaves_alone_what_turned_out_to_have_succeeded(fleet: Fleet, people: People):
    await fleet.hosts(3)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await fleet.say(claimed, "timeout", cause="TIMED_OUT")
    await fleet.say(claimed[:1], "succeed")
    await fleet.say(claimed[1:2], "fail")
    page = await get(people.vic, f"/jobs/{job_id}/executions")
    late = [item["late_result"] and item["late_result"]["event"] for item in page["items"]]
    assert late == ["succeed", "fail", None]
    made = (await people.ann.post(f"/jobs/{job_id}/retry")).json()
    assert await hosts_of(people, made["job_id"]) == ["2", "3"]


async def test_a_retry_takes_up_what_it_is_told_to(fleet: Fleet, people: People):
    job_id = await failed_job(fleet, people)
    for statuses, hosts in ((["BLOCKED", "CANCELLED"], ["1", "6"]), (["TIMEOUT"], ["4"])):
        external_id = f"again-{job_id}-{statuses[0]}"
        body = {"external_id": external_id, "statuses": statuses}
        made = await people.ann.post(f"/jobs/{job_id}/retry", json=body)
        assert made.json()["external_id"] == external_id
        assert await hosts_of(people, made.json()["job_id"]) == hosts
    taken = {"external_id": external_id, "statuses": ["FAILED"]}
    told(await people.ann.post(f"/jobs/{job_id}/retry", json=taken), 422, "job-conflict")


async def test_a_retry_waits_for_the_end_and_needs_something_that_failed(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    problem = stands(await people.ann.post(f"/jobs/{job_id}/retry"))
    assert problem["title"] == "More of the job may fail: retry when it has ended"
    await fleet.say(await fleet.claim(job_id), "succeed")
    problem = stands(await people.ann.post(f"/jobs/{job_id}/retry"))
    assert problem["title"] == "Nothing of the job is left to be run again"


async def test_a_retry_of_what_needs_approval_needs_its_own(fleet: Fleet, people: People):
    job_id = await waiting(fleet, people, hosts=1)
    await people.bob.post(f"/jobs/{job_id}/approve", headers=SEEN)
    await fleet.say(await fleet.claim(job_id), "fail")
    made = (await people.ann.post(f"/jobs/{job_id}/retry")).json()
    assert made["approval_state"] == "WAIT_APPROVAL"
