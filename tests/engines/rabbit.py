"""A RabbitMQ of the test's own, where one is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import folder_for_servers, until

# Not the one in the path, which changes to another user first.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
installed = PROGRAM.exists() and shutil.which("epmd") is not None


@contextmanager
def rabbit() -> Iterator[str]:
    """Start one, and give its address."""
    with folder_for_servers() as folder:
        port = _free_port()
        own = {
            "HOME": str(folder),  # for the cookie of Erlang
            "RABBITMQ_NODENAME": f"onward{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_BASE": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "ERL_EPMD_PORT": str(_free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        environment = {**os.environ, **own}
        log = folder / "said"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [str(PROGRAM)], env=environment, stdout=said, stderr=said, start_new_session=True
            )
        try:
            until(lambda: b"Starting broker... completed" in log.read_bytes())
            yield f"amqp://guest:guest@127.0.0.1:{port}//"
        finally:
            process.terminate()
            process.wait(60)
            subprocess.run(["epmd", "-kill"], env=environment, check=False, capture_output=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
