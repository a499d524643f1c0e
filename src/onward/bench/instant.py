"""Hosts that do nothing and remember nothing: a million of them cost no memory."""

from __future__ import annotations

from typing import Final

from onward.channels.base import Delivery, Output, Report, Stream

_SUCCESS: Final = Report(succeeded=True, exit_code=0)


class Instant:
    """A channel behind which every command prints a line and succeeds at once."""

    def __init__(self) -> None:
        self.delivered = 0

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Count it, print a line, and succeed."""
        self.delivered += 1
        output(Stream.STDOUT, f"{delivery.command_id}\n")
        return _SUCCESS

    async def cancel(self, delivery: Delivery) -> bool:  # noqa: ARG002 - nothing runs to be stopped
        """It had finished."""
        return False
