"""A program that opens a database, says so, and sweeps it once when it is told.

It prints `open`, waits for a line on its standard input, and prints the ids that it timed out.
"""

from __future__ import annotations

import asyncio
import json
import sys

import onward
from onward.commands import expire_due
from onward.settings import Settings


async def main(url: str) -> None:
    async with onward.open(Settings(database_url=url, require_durable=False)):
        print("open", flush=True)
        sys.stdin.readline()
        moved = await expire_due()
        print(json.dumps([(move.record and move.record.cmd_id, move.result) for move in moved]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
