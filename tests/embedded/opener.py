"""A program that opens a data directory, says where the servers are, and leaves when it is told.

It prints one line of JSON once it is inside (or the error that kept it out), and leaves
at the end of its standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
from pathlib import Path

from onward.embedded import servers
from onward.errors import OnwardError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--valkey", action="store_true")
    parser.add_argument("--fork", action="store_true", help="let a fork leave before we say a word")
    parser.add_argument(
        "--file-limit", type=int, help="bytes that a file may have, as on a full disk"
    )
    options = parser.parse_args()
    # A shell that runs the tests in the background makes all its children deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_limit, options.file_limit))
    try:
        with servers(options.data_dir, valkey=options.valkey, durable=options.durable) as found:
            if options.fork:
                child = os.fork()
                if child == 0:
                    sys.exit(0)
                os.waitpid(child, 0)
            urls = {"database_url": found.database_url, "redis_url": found.redis_url}
            print(json.dumps(urls), flush=True)
            sys.stdin.read()
    except OnwardError as error:
        print(json.dumps({"error": str(error), "type": type(error).__name__}), flush=True)


if __name__ == "__main__":
    main()
