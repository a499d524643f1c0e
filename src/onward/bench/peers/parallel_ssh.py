"""parallel-ssh, in a process of its own: one command on all hosts, over connections that are new.

Its client knows nothing of host keys, so it is spared that work. The clock runs from before its
client is made until the last line of output is read; importing it is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module

from onward.bench.sshd import ADDRESS


def main() -> None:
    """Read what to do from standard input, do it, and say how long it took."""
    wanted = json.load(sys.stdin)
    # No type information is published for it.
    clients, config = import_module("pssh.clients"), import_module("pssh.config")
    started = time.perf_counter()
    client = clients.ParallelSSHClient(
        [ADDRESS] * len(wanted["ports"]),
        user=wanted["user"],
        pkey=wanted["key"],
        pool_size=wanted["pool"],
        host_config=[config.HostConfig(port=port) for port in wanted["ports"]],
        allow_agent=False,
    )
    hosts = client.run_command(wanted["command"])
    client.join(hosts)
    said = [(list(host.stdout), host.exit_code) for host in hosts]
    seconds = time.perf_counter() - started
    done = sum(bool(lines) and code == 0 for lines, code in said)
    json.dump({"seconds": seconds, "done": done}, sys.stdout)


if __name__ == "__main__":
    main()
