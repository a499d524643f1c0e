"""Runs the demo from the first host to the last finding."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onward.demo import evidence, invariants, sabotage, script
from onward.demo.caller import Caller
from onward.demo.evidence import Evidence
from onward.demo.script import Demo, Errand
from onward.demo.stage import Stage, staged
from onward.demo.state import View
from onward.demo.watching import Watch, watching
from onward.embedded import Servers
from onward.errors import InvalidInput, InvariantBroken, OnwardError
from onward.findings import Finding
from onward.scratch import scratch_folder, scratch_servers
from onward.store import database

_PATIENCE_S: Final = 60.0  # without anything that ends
_LOOK_S: Final = 0.2
_LAST_WORDS_S: Final = 1.0
_FOUR_EYES: Final = 403


@dataclass(frozen=True, slots=True)
class Kill:
    """What was killed, and in the middle of what."""

    worker: str
    pid: int
    running: int


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a demo."""

    demo: Demo
    seconds: float  # from the first job to the last end
    kill: Kill
    evidence: Evidence
    findings: list[Finding]

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return all(finding.holds for finding in self.findings)


def run(demo: Demo, view: View) -> Report:
    """Run it; blocks until everything has ended, and leaves no process behind."""
    if demo.plant not in {None, *sabotage.PLANTS}:
        raise InvalidInput("plant", f"{demo.plant!r} is not one of {', '.join(sabotage.PLANTS)}")
    view.say("starting PostgreSQL, with every commit on disk")
    with (
        scratch_folder("demo", demo.data_dir) as folder,
        scratch_servers("demo", folder) as servers,
    ):
        return asyncio.run(_Conductor(demo, view, servers, folder).run())


class _Conductor:
    def __init__(self, demo: Demo, view: View, servers: Servers, folder: Path) -> None:
        self._demo = demo
        self._view = view
        self._url = servers.database_url
        self._folder = folder
        self._stage: Stage

    async def run(self) -> Report:
        """Play the whole script on an empty database, and judge what came of it."""
        self._view.say("starting the service, two workers, and the hosts in a process of their own")
        async with staged(self._demo, self._url, self._folder) as stage:
            self._stage = stage
            try:
                hosts, before, kill, seconds = await self._play(await stage.start())
                self._view.say("everything has ended; asking the programs to leave")
                await stage.dismiss()
            except OnwardError:
                # Somebody who has given up says best why the others could not go on.
                await asyncio.sleep(_LAST_WORDS_S)
                stage.check()
                raise
        found = await self._judged(frozenset(hosts), before)
        return Report(self._demo, seconds, kill, found, invariants.check(found))

    async def _play(self, admin: Caller) -> tuple[list[int], int, Kill, float]:
        ann, ann_again, ben = await self._people(admin)
        hosts = await self._fleet(admin)
        async with watching(self._url, admin, self._stage.programs, self._view) as watch:
            began_at = time.monotonic()
            jobs = [await self._ask(watch, ann, errand) for errand in script.ERRANDS]
            before = await self._approve(watch, jobs[0], ann_again, ben)
            kill = await self._kill(watch)
            await self._until(watch, lambda: watch.over)
            return hosts, before, kill, time.monotonic() - began_at

    async def _people(self, admin: Caller) -> list[Caller]:
        """Make keys: two of one person, who must not approve with the second what she asks for."""
        found = []
        for name, person, role in (
            ("ann", "ann", "operator"),
            ("ann, as approver", "ann", "approver"),
            ("ben", "ben", "approver"),
        ):
            wanted = {"name": name, "person": person, "role": role}
            made = await admin.do("POST", "/keys", wanted)
            found.append(Caller(admin.address, made.body["key"]))
        return found

    async def _fleet(self, admin: Caller) -> list[int]:
        """Make the hosts and what can be asked of them, and forbid something on a few."""
        await admin.do("POST", "/hosts/import", script.inventory(self._demo))
        hosts = await _host_ids(admin)
        for errand in script.ERRANDS:
            await admin.do("PUT", f"/command-types/{errand.kind.name}", errand.kind.as_json())
        forbidden = script.blocked(hosts)
        kind = script.UPGRADE.kind.name
        for host in forbidden:
            wanted = {"reason": "frozen for the audit"}
            seen = await admin.do("GET", f"/hosts/{host}")
            path = f"/hosts/{host}/blocks/{kind}"
            await admin.do("PUT", path, wanted, if_match=seen.etag)
        self._view.say(f"{len(hosts):,} hosts are there, {len(forbidden)} of them closed to {kind}")
        return hosts

    async def _ask(self, watch: Watch, ann: Caller, errand: Errand) -> int:
        """Send a job through the webhook, twice, as networks do."""
        body = {
            "external_id": errand.name,
            "command_type": errand.kind.name,
            "params": errand.params,
            "selector": "all",
        }
        made = await ann.do("POST", "/webhook/jobs", body)
        again = await ann.do("POST", "/webhook/jobs", body)
        job_id: int = made.body["job_id"]
        if again.body["job_id"] != job_id or not again.body["duplicate"]:
            raise InvariantBroken(f"The webhook of {errand.name} has made two jobs.")
        watch.follow(errand.name, job_id)
        told = ": it waits for approval" if made.body["approval_state"] else ""
        self._view.say(f"ann asks for {errand.name} on {made.body['total']:,} hosts{told}")
        return job_id

    async def _approve(self, watch: Watch, job_id: int, ann: Caller, ben: Caller) -> int:
        """Let the first job be approved, in the middle of the others.

        Returns how many lines the journal had before.
        """
        path = f"/jobs/{job_id}"
        share = script.APPROVE_AT * (len(script.ERRANDS) - 1) / len(script.ERRANDS)
        await self._until(watch, lambda: watch.state.settled >= share * watch.state.total)
        seen = await ben.do("GET", path)
        refused = await ann.ask("POST", f"{path}/approve", {}, if_match=seen.etag)
        if refused.status != _FOUR_EYES:
            raise InvariantBroken(f"ann has approved what she asked for: {refused.status}.")
        self._view.say("ann tries to approve her own job with another key, and may not")
        before = len(await self._stage.witnessed())
        why = {"reason": "seen in staging"}
        await ben.do("POST", f"{path}/approve", why, if_match=seen.etag)
        self._view.say(f"ben approves {script.UPGRADE.name}")
        return before

    async def _kill(self, watch: Watch) -> Kill:
        """Kill a worker that is busy, and start another in its place."""
        victim = self._stage.workers[0]
        enough = script.KILL_AT * watch.state.total
        await self._until(
            watch,
            lambda: watch.over or (watch.state.settled >= enough and watch.running(victim) > 0),
        )
        kill = Kill(victim.name, victim.pid, watch.running(victim))
        await victim.kill()
        self._view.say(
            f"killed {victim.name} (pid {victim.pid}, SIGKILL) in the middle of about "
            f"{kill.running} runs; starting another"
        )
        await self._stage.add_worker()
        # Its runs may have ended just before it did; then there is nothing to be rescued.
        await self._until(watch, lambda: evidence.WORKER_LOST in watch.state.causes or watch.over)
        if rescued := watch.state.causes.get(evidence.WORKER_LOST):
            self._view.say(f"{rescued} runs of {victim.name} are queued again, under new epochs")
        return kill

    async def _until(self, watch: Watch, over: Callable[[], bool]) -> None:
        """Watch until something is so, and not for ever."""
        settled, patience = -1, 0.0
        while True:
            await watch.look()
            self._stage.check()
            if over():
                return
            if watch.state.settled != settled:
                settled, patience = watch.state.settled, time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience:
                raise InvariantBroken(f"Nothing has ended for {_PATIENCE_S:.0f} s.")
            await asyncio.sleep(_LOOK_S)

    async def _judged(self, hosts: frozenset[int], before: int) -> Evidence:
        """Gather the evidence, after a promise has been broken if one is to be."""
        self._view.say("asking the tables and the hosts' journal whether every promise was kept")
        journal = await self._stage.witnessed()
        connection = await database.connect(self._url)
        try:
            found = await evidence.gather(connection, journal, hosts=hosts, before_approval=before)
            if self._demo.plant is None:
                return found
            journal += await sabotage.plant(connection, found, self._demo.plant)
            return await evidence.gather(connection, journal, hosts=hosts, before_approval=before)
        finally:
            await connection.close()


async def _host_ids(admin: Caller) -> list[int]:
    found: list[int] = []
    cursor = ""
    while True:
        page = await admin.get(f"/hosts?limit=1000{cursor}")
        found += [host["host_id"] for host in page["items"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"
