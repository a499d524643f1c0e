"""A worker: an engine alone, in a process of its own, on the servers that the settings name.

It says `ready` once it is open, and works until it is told to leave.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import onward
from onward.channels.simulated import NETWORKS
from onward.engines.equipment import Simulated
from onward.service import leaving, logs
from onward.service.working import work
from onward.settings import Settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    parser = ArgumentParser(prog="python -m onward.service.worker", description=__doc__)
    parser.add_argument("--fleet", type=Path, help="the socket of hosts in another process")
    parser.add_argument("--network", choices=sorted(NETWORKS), default="calm")
    parser.add_argument("--seed", type=int, default=0, help="what chance is drawn from")
    options = parser.parse_args(arguments)
    logs.configure()
    leaving.run(partial(_work, Simulated(options.network, options.seed, options.fleet)))


async def _work(simulated: Simulated, stopping: asyncio.Event) -> None:
    settings = Settings()
    async with onward.open(settings) as opened:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await work(opened.database_url, settings, simulated, stopping)


if __name__ == "__main__":
    main()
