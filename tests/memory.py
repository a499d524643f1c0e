"""Where tests keep their files: in memory, if there is enough of it.

Hundreds of databases and dozens of servers are made in a run, and none of them outlives it. On a
disk that others use as well, copying a database takes ten times as long as in memory. A process
that is killed loses nothing there; what a power failure would take is not tested either way.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PLACE = Path("/dev/shm")  # noqa: S108 - only where it is what it is on Linux
_PREFIX = "onward-tests-"
_ENOUGH = 6 * 2**30  # bytes; a whole run keeps about one of them


def move_in() -> Path | None:
    """Let temporary files be made in memory; returns their folder, unless somebody chose another.

    What tests start is told so by its environment.
    """
    if "TMPDIR" in os.environ or not _fits():
        return None
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_PLACE))
    # The servers of a run under root belong to another user, who has to come through.
    folder.chmod(0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def move_out(folder: Path) -> None:
    """Leave nothing there."""
    del os.environ["TMPDIR"]
    tempfile.tempdir = None
    shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what runs have left that were killed: nobody else would, and it is memory."""
    for folder in _PLACE.glob(f"{_PREFIX}*-*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _fits() -> bool:
    try:
        found = os.statvfs(_PLACE)
        told = Path("/proc/meminfo").read_text("ascii")
    except OSError:
        return False
    available = int(told.partition("MemAvailable:")[2].split()[0]) * 1_024
    room = min(found.f_bavail * found.f_frsize, available)
    # Tests write programs, and run them.
    return room > _ENOUGH and not found.f_flag & os.ST_NOEXEC
