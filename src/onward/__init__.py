"""Onward: commands that move forward only, end exactly once, and can say why they are there.

`async with onward.open():` gives a store on a real PostgreSQL; `onward.commands` holds what can be
done with a command there; `onward.core` holds the law itself, without any I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onward.wiring import open as open  # noqa: A004 - `onward.open()` is the name users read

__all__ = ["open"]
__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> object:
    # `import onward.core` must cost nothing but the core: the store, its driver and the settings
    # are loaded when somebody opens.
    if name == "open":
        from onward import wiring  # noqa: PLC0415 - see above

        return wiring.open
    msg = f"module 'onward' has no attribute {name!r}"
    raise AttributeError(msg)
