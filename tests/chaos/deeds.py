"""What chaos does to the service in its parts: each deed as often as it is drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.conftest import Mortal
from tests.chaos.parts import WORKERS, Parts, end
from tests.mortal_valkey import MortalValkey

Deed = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Chaos:
    """Somebody with a hand on every process, and what they draw their deeds from."""

    parts: Parts
    postgresql: Mortal
    valkey: MortalValkey
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def do(self, deed: Deed) -> None:
        """Do it, and remember it."""
        deed()
        self.done[deed.__name__] += 1

    def drawn(self) -> list[Deed]:
        """Every kind of deed, the killing of workers twice, in the order in which they are done."""
        kill_worker: list[Deed] = [
            self.kill_a_worker,
            self.kill_the_program_of_a_worker,
            self.kill_the_process_of_a_worker,
        ]
        kinds: list[list[Deed]] = [
            kill_worker,
            kill_worker,
            [self.kill_beat, self.kill_the_program_of_beat],
            [self.restart_valkey],
            [self.kill_the_api, self.restart_the_api],
            [self.crash_postgresql, self.restart_postgresql, self.crash_postgresql_and_a_process],
            [self.replace_a_worker, self.wipe_valkey],
        ]
        self.chance.shuffle(kinds)
        return [self.chance.choice(kind) for kind in kinds]

    def kill_a_worker(self) -> None:
        """Kill `onward worker` itself, and start another beside what it leaves behind."""
        name = self._worker()
        self.parts.kill(name)
        self.parts.start(name)

    def kill_the_program_of_a_worker(self) -> None:
        """Kill the Celery program, which takes its process along."""
        end(self.parts.program(self._worker()))

    def kill_the_process_of_a_worker(self) -> None:
        """Kill only the process in which the runs are."""
        end(self.parts.process(self._worker()))

    def replace_a_worker(self) -> None:
        """Let a worker leave in good order, as an update does, and start another."""
        name = self._worker()
        self.parts.leave(name)
        self.parts.start(name)

    def kill_beat(self) -> None:
        """Kill `onward beat` itself, and start another."""
        self.parts.kill("beat")
        self.parts.start("beat")

    def kill_the_program_of_beat(self) -> None:
        """Kill the Celery program."""
        end(self.parts.program("beat"))

    def restart_valkey(self) -> None:
        """Kill it with all messages in it."""
        self.valkey.strike_down()
        self.valkey.raise_up()

    def wipe_valkey(self) -> None:
        """Let it forget everything, behind connections that stay."""
        self.valkey.empty()

    def kill_the_api(self) -> None:
        """Kill the API, and start another."""
        self.parts.kill("api")
        self.parts.start("api")

    def restart_the_api(self) -> None:
        """Let the API leave in good order, and start another."""
        self.parts.leave("api")
        self.parts.start("api")

    def crash_postgresql(self) -> None:
        """Let it recover from a crash."""
        self.postgresql.strike_down()
        self.postgresql.raise_up()

    def restart_postgresql(self) -> None:
        """Let it send everybody away, leave in good order, and come back."""
        self.postgresql.strike_down("fast")
        self.postgresql.raise_up()

    def crash_postgresql_and_a_process(self) -> None:
        """Kill the process of a worker while there is no server for the one that replaces it."""
        self.postgresql.strike_down()
        self.kill_the_process_of_a_worker()
        self.postgresql.raise_up()

    def _worker(self) -> str:
        return self.chance.choice(WORKERS)
