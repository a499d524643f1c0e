"""What a command does on a simulated host, read from its parameters.

    {}                          succeeds at once
    {"sleep_s": 2.5}            takes that long
    {"exit_code": 3}            ends with it; other than 0 is a failure
    {"fail_times": 2}           fails on its first two attempts on a host
    {"lines": 5}                writes that many lines, by turns to stdout and stderr
    {"lines": 5, "text": "…"}   and each of them is the text

An `echo` writes its own parameters to stdout, as one line of JSON. Other parameters mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from onward.channels.base import Report, Stream

MAX_LINES = 10_000
MAX_SLEEP_S = 1e9
_STREAMS = (Stream.STDOUT, Stream.STDERR)

SUCCESS = Report(succeeded=True, exit_code=0)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What one run does."""

    sleep_s: float = 0.0
    exit_code: int = 0
    fail_times: int = 0
    lines: int = 0
    text: str | None = None

    def line(self, number: int) -> tuple[Stream, str]:
        """One line of output, counted from 0, and where it goes."""
        text = f"line {number + 1} of {self.lines}" if self.text is None else self.text
        return _STREAMS[number % 2], f"{text}\n"

    def result(self, attempt: int) -> Report:
        """What the host says when the n-th attempt has come to its end."""
        exit_code = self.exit_code
        if attempt <= self.fail_times:
            exit_code = exit_code or 1
        if exit_code == 0:
            return SUCCESS
        return Report(succeeded=False, exit_code=exit_code, error=f"exit code {exit_code}")


INSTANT = Behaviour()


def behaviour_of(command_type: str, params: Mapping[str, object]) -> Behaviour:
    """What a command with these parameters does; ValueError says what is wrong with them."""
    if command_type == "echo":
        return Behaviour(lines=1, text=_json(params))
    if not params:
        return INSTANT
    text = params.get("text")
    if not (text is None or isinstance(text, str)):
        raise ValueError("text must be a string")
    return Behaviour(
        sleep_s=_seconds(params.get("sleep_s", 0.0)),
        exit_code=_whole("exit_code", params.get("exit_code", 0), 255),
        fail_times=_whole("fail_times", params.get("fail_times", 0), 2**31),
        lines=_whole("lines", params.get("lines", 0), MAX_LINES),
        text=text,
    )


def _json(params: Mapping[str, object]) -> str:
    try:
        return json.dumps(dict(params))
    except RecursionError:
        raise ValueError("the parameters are nested too deeply") from None


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SLEEP_S:
        return float(value)
    raise ValueError("sleep_s must be a number of seconds from 0 up")


def _whole(name: str, value: object, most: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    raise ValueError(f"{name} must be a whole number from 0 to {most}")
