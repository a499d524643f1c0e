"""Finds the measurements by their names, and runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from onward.bench.result import Result
from onward.errors import InvalidInput

Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """A measurement: what it is about, and how to start it."""

    about: str
    run: Callable[[Progress], Iterator[Result]]


def _store(progress: Progress) -> Iterator[Result]:
    from onward.bench.store import store  # noqa: PLC0415 - loaded when it is asked for

    return store(progress)


def _large(progress: Progress) -> Iterator[Result]:
    from onward.bench.large import large  # noqa: PLC0415 - as above

    return large(progress)


def _registry(progress: Progress) -> Iterator[Result]:
    from onward.bench.registry import registry  # noqa: PLC0415 - as above

    return registry(progress)


BENCHES: Final[Mapping[str, Bench]] = MappingProxyType(
    {
        "store": Bench("transitions in PostgreSQL, against pgbench doing the same", _store),
        "large": Bench("a transition among 5,000,000 commands, against one among 10,000", _large),
        "registry": Bench("transitions in memory, against state-machine libraries", _registry),
    }
)


def run(names: Sequence[str], progress: Progress) -> Iterator[Result]:
    """Run the measurements of these names, all of them if none is named."""
    chosen = list(dict.fromkeys(names)) or list(BENCHES)
    for name in chosen:
        if name not in BENCHES:
            raise InvalidInput("bench", f"{name!r} is not one of {', '.join(BENCHES)}")
    for name in chosen:
        yield from BENCHES[name].run(progress)
