"""The simulated fleet as a program: says `ready` on stdout, and runs until it is told to end."""

from __future__ import annotations

import asyncio
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from onward.channels.simulated.hosts import COMMAND_TYPES, SimulatedFleet
from onward.channels.simulated.journal import Journal
from onward.channels.simulated.network import NETWORKS
from onward.channels.simulated.server import serve


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    options = _parser().parse_args(arguments)
    journal = Journal(options.journal)
    try:
        asyncio.run(_serve_until_told(options, journal))
    finally:
        journal.close()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m onward.channels.simulated", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where clients find the fleet")
    parser.add_argument("--journal", type=Path, help="the file that effects are appended to")
    parser.add_argument("--hosts", type=int, default=10_000, help="their ids are from 1 to this")
    parser.add_argument("--seed", type=int, default=0, help="what chance is drawn from")
    parser.add_argument("--network", choices=sorted(NETWORKS), default="calm")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds in a second")
    parser.add_argument("--any-type", action="store_true", help="let hosts know every command type")
    parser.add_argument(
        "--forgetful", action="store_true", help="let hosts run again what has succeeded before"
    )
    parser.add_argument("--unfenced", action="store_true", help="let hosts run whatever comes")
    return parser


async def _serve_until_told(options: Namespace, journal: Journal) -> None:
    fleet = SimulatedFleet(
        range(1, options.hosts + 1),
        journal=journal,
        command_types=None if options.any_type else COMMAND_TYPES,
        remembers=not options.forgetful,
        fenced=not options.unfenced,
        speed=options.speed,
    )
    network = NETWORKS[options.network](options.seed)
    serving = asyncio.create_task(serve(fleet, network, options.socket, ready=_say_ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        options.socket.unlink(missing_ok=True)


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
