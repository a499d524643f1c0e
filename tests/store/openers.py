"""A program that becomes many, which open one database at the same moment.

It prints the exit codes: 0 for each that was let in.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback

from onward import wiring
from onward.settings import Settings


async def enter(url: str) -> None:
    async with wiring.open(Settings(database_url=url, require_durable=False, pool_size=1)):
        pass


def main(url: str, count: int) -> None:
    ready, go = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)  # the end of the pipe is the signal: all start at once
            code = 1
            try:
                asyncio.run(enter(url))
                code = 0
            except BaseException:  # noqa: BLE001 - told, and by the code
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(go)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
