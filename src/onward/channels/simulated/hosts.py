"""The simulated hosts: what each does with what reaches it, and what it remembers.

A host behaves as an agent with a journal does:

1. It answers a repeat of (command, epoch) from memory, or lets it join the run, and never runs
   it again. A refusal is remembered as well: what was refused will not run, however late a copy.
2. It refuses an epoch lower than the highest that it has seen.
3. It runs one exclusive command at a time, and nothing beside it. A newer attempt at the command
   that runs is no rival: the old run is stopped, and the new one takes its place.
4. A newer attempt at what has already succeeded is answered from memory, too, unless `remembers`
   is off. What failed, was stopped or crashed runs again: that is what the new attempt is for.
5. Its memory survives a crash, and, if the journal is in a file, the end of the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace

from onward.channels.base import Delivery, Output, Report
from onward.channels.simulated.behaviour import Behaviour, behaviour_of
from onward.channels.simulated.journal import Journal, What
from onward.channels.simulated.memory import INTERRUPTED, Host, Memory, Run
from onward.channels.simulated.network import Crash
from onward.errors import HostBusy, HostRefused, InvalidInput, NotDelivered

COMMAND_TYPES = frozenset({
    "backup", "collect", "configure", "echo", "ping", "reboot", "restart", "run", "upgrade",
})  # fmt: skip
_TIMED_OUT = 124  # what timeout(1) exits with


class _NotNowError(ValueError):
    """Why an attempt will not run now; a later one may."""


class SimulatedFleet:
    """Hosts by id, each made when it is first spoken to.

    `fenced=False` makes hosts that run whatever comes, as often as it comes: they show what the
    system does when the last wall is missing. Time is simulated: `speed` seconds of it pass in
    one second of `clock`, and every wait goes through `sleep`. A machine that is late by a
    millisecond is late by `speed` of them here: faster than it can follow looks like silence.
    """

    def __init__(
        self,
        hosts: Container[int] = range(1, 10_001),
        *,
        journal: Journal | None = None,
        command_types: Container[str] | None = COMMAND_TYPES,  # none: any
        remembers: bool = True,
        fenced: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        speed: float = 1.0,
    ) -> None:
        if not 0 < speed < float("inf"):
            raise InvalidInput("speed", f"{speed} is no number above 0")
        self.journal = Journal() if journal is None else journal
        self._ids = hosts
        self._types = command_types
        self._remembers = remembers
        self._fenced = fenced
        self._sleep = sleep
        self._clock = clock
        self._speed = speed
        self._hosts: dict[int, Host] = {}
        self._recall()

    def now(self) -> float:
        """The time, in simulated seconds."""
        return self._clock() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Let simulated seconds pass."""
        if seconds > 0:
            await self._sleep(seconds / self._speed)

    def up(self, host_id: int) -> bool:
        """Whether there is such a host, and it is not down after a crash."""
        host = self._hosts.get(host_id)
        if host is None:
            return host_id in self._ids
        return not host.down_until or self.now() >= host.down_until

    def receive(
        self, delivery: Delivery, output: Output, crash: Crash | None = None
    ) -> Report | Run:
        """What the host does when an attempt reaches it: a report, or a run to wait for.

        Raises HostRefused, or NotDelivered if there is no such host or it is down.
        """
        host = self._reached(delivery)
        memory = host.commands.get(delivery.command_id)
        if memory is None:
            memory = host.commands[delivery.command_id] = Memory()
        elif self._fenced and (known := self._known(host, memory, delivery, output)) is not None:
            return known
        try:
            behaviour = self._accepted(host, delivery)
        except ValueError as error:
            kind = HostBusy if isinstance(error, _NotNowError) else HostRefused
            if delivery.epoch > memory.epoch:
                memory.refuse(delivery.epoch, kind(str(error)))
            self._write(What.REFUSED, delivery, error=str(error))
            raise kind(str(error)) from None
        finally:
            # Also what is refused has been seen.
            host.see(delivery.epoch)
        if self._fenced and host.runs:
            self._displace(host, delivery)
        if behaviour.sleep_s or crash is not None:
            return self._start(host, memory, Run(delivery, behaviour, output, crash))
        return self._run_at_once(memory, delivery, behaviour, output)

    def stop(self, delivery: Delivery) -> bool:
        """Stop an attempt: true if it does not run and will not, false if it had finished.

        An attempt that is still on its way will be refused when it comes.
        """
        host = self._reached(delivery)
        host.see(delivery.epoch)
        memory = host.commands.setdefault(delivery.command_id, Memory())
        running = [
            run
            for run in host.runs
            if run.delivery.command_id == delivery.command_id
            and run.delivery.epoch <= delivery.epoch
        ]
        for run in running:
            self._stop(host, run, "stopped on request")
        if delivery.epoch > memory.epoch and not self._done(memory):
            reason = "it was stopped before it came"
            memory.refuse(delivery.epoch, HostRefused(reason))
            self._write(What.REFUSED, delivery, error=reason)
        elif not running:
            return not memory.finished
        return True

    async def aclose(self) -> None:
        """Abandon what runs, as when the power goes: the journal keeps starts without ends."""
        runs = [run for host in self._hosts.values() for run in host.runs]
        for run in runs:
            run.task.cancel()
            if not run.done.done():
                run.done.set_result(None)
        await asyncio.gather(*(run.task for run in runs), return_exceptions=True)

    def _reached(self, delivery: Delivery) -> Host:
        host_id = delivery.target.host_id
        host = self._hosts.get(host_id)
        if host is None:
            if host_id not in self._ids:
                raise NotDelivered(f"There is no host {host_id} in the simulated fleet.")
            host = self._hosts[host_id] = Host()
        elif host.down_until and self.now() < host.down_until:
            raise NotDelivered(f"Host {host_id} is down; it will be back.")
        return host

    def _known(
        self, host: Host, memory: Memory, delivery: Delivery, output: Output
    ) -> Report | Run | None:
        """What the memory says about an attempt, and none if it has to be looked at."""
        if delivery.epoch == memory.epoch:
            if memory.refusal is not None:
                raise type(memory.refusal)(str(memory.refusal))
            if memory.run is not None:
                return memory.run.join(output)
            return replace(memory.report or INTERRUPTED, repeated=True)
        if delivery.epoch > memory.epoch and self._done(memory):
            memory.epoch = delivery.epoch
            host.see(delivery.epoch)
            self._write(What.ANSWERED, delivery)
            return replace(memory.report or INTERRUPTED, repeated=True)
        return None

    def _done(self, memory: Memory) -> bool:
        """Whether the command has succeeded and need not run again."""
        return (
            self._remembers
            and self._fenced
            and memory.run is None
            and memory.report is not None
            and memory.report.succeeded
        )

    def _accepted(self, host: Host, delivery: Delivery) -> Behaviour:
        """What the attempt will do; ValueError is the reason why it will not."""
        if self._fenced:
            if delivery.epoch < host.highest:
                raise _NotNowError(
                    f"epoch {delivery.epoch} is over: the host has seen {host.highest}"
                )
            for run in host.runs:
                rival = run.delivery.command_id != delivery.command_id
                if rival and (delivery.exclusive or run.delivery.exclusive):
                    raise _NotNowError(f"the host is busy with {run.delivery.command_id}")
        if self._types is not None and delivery.command_type not in self._types:
            raise ValueError(f"the host knows no command {delivery.command_type!r}")
        return behaviour_of(delivery.command_type, delivery.params)

    def _displace(self, host: Host, delivery: Delivery) -> None:
        for run in [*host.runs]:
            if run.delivery.command_id == delivery.command_id:
                self._stop(host, run, f"displaced by epoch {delivery.epoch}")

    def _run_at_once(
        self, memory: Memory, delivery: Delivery, behaviour: Behaviour, output: Output
    ) -> Report:
        self._write(What.STARTED, delivery)
        memory.begin(delivery.epoch)
        for number in range(behaviour.lines):
            output(*behaviour.line(number))
        report = memory.report = behaviour.result(memory.attempts)
        self._write_end(What.FINISHED, delivery, report)
        return report

    def _start(self, host: Host, memory: Memory, run: Run) -> Run:
        self._write(What.STARTED, run.delivery)
        memory.begin(run.delivery.epoch, run)
        run.attempt = memory.attempts
        host.runs.append(run)
        run.task = asyncio.get_running_loop().create_task(self._work(host, run))
        run.task.add_done_callback(run.pass_on_bug)
        return run

    async def _work(self, host: Host, run: Run) -> None:
        behaviour, timeout_s = run.behaviour, run.delivery.timeout_s
        left_s = min(behaviour.sleep_s, timeout_s) * (1.0 if run.crash is None else run.crash.at)
        steps = max(1, behaviour.lines)
        for number in range(steps):
            if behaviour.lines:
                for ear in run.ears:
                    ear(*behaviour.line(number))
            pause_s = min(behaviour.sleep_s / steps, left_s)
            await self.sleep(pause_s)
            left_s -= pause_s
            if left_s <= 0 and behaviour.sleep_s:
                break
        if run.crash is not None:
            self._go_down(host, run.crash.down_s)
        elif behaviour.sleep_s > timeout_s:
            report = Report(
                succeeded=False, exit_code=_TIMED_OUT, error=f"stopped after {timeout_s} s"
            )
            self._end(host, run, What.STOPPED, report)
        else:
            self._end(host, run, What.FINISHED, behaviour.result(run.attempt))

    def _stop(self, host: Host, run: Run, why: str) -> None:
        self._end(host, run, What.STOPPED, Report(succeeded=False, error=why))
        run.task.cancel()

    def _go_down(self, host: Host, down_s: float) -> None:
        host.down_until = self.now() + down_s
        for run in [*host.runs]:
            self._end(host, run, What.CRASHED, None)
            if run.task is not asyncio.current_task():
                run.task.cancel()

    def _end(self, host: Host, run: Run, what: What, report: Report | None) -> None:
        self._write_end(what, run.delivery, report or INTERRUPTED)
        host.runs.remove(run)
        memory = host.commands[run.delivery.command_id]
        if memory.run is run:
            memory.run = None
            memory.report = report or INTERRUPTED
        if not run.done.done():
            run.done.set_result(report)

    def _write(self, what: What, delivery: Delivery, error: str | None = None) -> None:
        self.journal.write(
            what, self.now(), delivery.target.host_id, delivery.command_id, delivery.epoch,
            delivery.exclusive, None, None, error,
        )  # fmt: skip

    def _write_end(self, what: What, delivery: Delivery, report: Report) -> None:
        self.journal.write(
            what, self.now(), delivery.target.host_id, delivery.command_id, delivery.epoch,
            delivery.exclusive, report.succeeded, report.exit_code, report.error,
        )  # fmt: skip

    def _recall(self) -> None:
        """Take up the memory from a journal that was there before."""
        open_runs = {}
        for effect in self.journal.effects:
            host = self._hosts.setdefault(effect.host_id, Host())
            memory = host.commands.setdefault(effect.command_id, Memory())
            host.see(effect.epoch)
            key = (effect.host_id, effect.command_id, effect.epoch)
            match effect.what:
                case What.STARTED:
                    memory.begin(effect.epoch)
                    open_runs[key] = effect
                case What.REFUSED:
                    if effect.epoch > memory.epoch:
                        # Why is not written down; "not now" is the answer that gives up nothing.
                        refusal = HostBusy(effect.error or "refused before")
                        memory.refuse(effect.epoch, refusal)
                case What.ANSWERED:
                    memory.epoch = effect.epoch
                case What.FINISHED | What.STOPPED | What.CRASHED:
                    open_runs.pop(key, None)
                    if effect.epoch == memory.epoch:
                        memory.report = Report(
                            succeeded=bool(effect.succeeded),
                            exit_code=effect.exit_code,
                            error=effect.error,
                        )
        for start in open_runs.values():
            # Whoever ran them is gone, and so is the run.
            self.journal.write(
                What.CRASHED, self.now(), start.host_id, start.command_id, start.epoch,
                start.exclusive, INTERRUPTED.succeeded, None, INTERRUPTED.error,
            )  # fmt: skip
