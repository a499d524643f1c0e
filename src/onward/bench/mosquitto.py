"""A mosquitto to measure with, and what its own clients make of it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from onward.errors import InvariantBroken

_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_BOUND_S: Final = 120.0
_TOPIC: Final = "bench/mosquitto"
# As docs/mqtt.md asks for it, and the same for both sides.
_CONFIGURATION: Final = """\
listener {port} 127.0.0.1
user {user}
allow_anonymous true
persistence false
max_inflight_messages 1000
max_queued_messages 0
log_type none
"""
VERSIONS: Final = ("311", "5")  # of MQTT, which its clients speak


def missing() -> str | None:
    """The first of the programs that is not installed."""
    for program in ("mosquitto", "mosquitto_pub", "mosquitto_sub"):
        if shutil.which(program, path=_PATH) is None:
            return program
    return None


@contextmanager
def mosquitto() -> Iterator[int]:
    """Start a broker, and give its port."""
    with tempfile.TemporaryDirectory(prefix="onward-bench-") as folder:
        port = _free_port()
        configuration = Path(folder) / "conf"
        configuration.write_text(_CONFIGURATION.format(port=port, user=getpass.getuser()))
        process = subprocess.Popen(  # noqa: S603 - our own words
            [_found("mosquitto"), "-c", str(configuration)],
            stderr=subprocess.DEVNULL,  # it warns of root
        )
        try:
            _until(lambda: _answers(port), process)
            yield port
        finally:
            process.terminate()
            process.wait(_BOUND_S)


def publish_subscribe_rate(port: int, messages: int, *, size: int, version: str) -> float:
    """Messages a second from mosquitto_pub to mosquitto_sub, QoS 1 on both sides."""
    common = ["-h", "127.0.0.1", "-p", str(port), "-V", version, "-q", "1", "-t", _TOPIC]
    # A message that is kept for whoever subscribes tells when that has happened.
    _run("mosquitto_pub", *common, "-r", "-m", "ready")
    with tempfile.NamedTemporaryFile() as printed:
        subscriber = subprocess.Popen(  # noqa: S603 - our own words
            [_found("mosquitto_sub"), *common, "-C", str(messages + 1)], stdout=printed
        )
        try:
            _until(lambda: Path(printed.name).stat().st_size > 0, subscriber)
            start = time.perf_counter()
            _run("mosquitto_pub", *common, "-l", given=(b"x" * size + b"\n") * messages)
            subscriber.wait(_BOUND_S)
            return messages / (time.perf_counter() - start)
        finally:
            subscriber.kill()
            subscriber.wait()


def _run(program: str, *arguments: str, given: bytes = b"") -> None:
    subprocess.run([_found(program), *arguments], input=given, check=True, timeout=_BOUND_S)  # noqa: S603 - our own words


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _until(over: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _BOUND_S
    while not over():
        if time.monotonic() > deadline or process.poll() is not None:
            raise InvariantBroken(f"{process.args!r:.200} does not start")
        time.sleep(0.01)


def _found(program: str) -> str:
    return shutil.which(program, path=_PATH) or program


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
