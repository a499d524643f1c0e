"""Runs a program that must not outlive whoever started it: `python -m onward.demo.child MODULE …`.

When its standard input ends, its parent is gone, however that came about. It is then asked to leave
as with SIGTERM, so that it can stop what it has started itself; and if it does not, it is ended.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

_PATIENCE_S: Final = 20.0


def main() -> None:
    """Run the module that the command line names, with the rest of it as its arguments."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _leave_with_parent() -> None:
    # Not through sys.stdin: its lock would be held when the interpreter ends.
    while os.read(0, 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE_S)
    os._exit(1)


if __name__ == "__main__":
    main()
