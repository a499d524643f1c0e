"""What came along with a node's word, as much of it as can be kept.

A node is a small thing and may be wrong about a detail. Its word counts all the same: a detail that
has no place is left out, or kept as text, and never takes the word with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onward.channels.mqtt.envelope import canonical

RESULT_MAX: Final = 200 * 1024  # bytes
_TEXT_MAX: Final = 4_096
_DEPTH_MAX: Final = 32
_CODE_MAX: Final = 255
_BIG: Final = 2**63


def told(said: Mapping[str, object]) -> dict[str, object]:
    """The details of a status, under the names that a command keeps them by."""
    data: dict[str, object] = {}
    for name, value in said.items():
        if value is None:
            continue
        if name == "result":
            data["result"] = _result(value)
        elif name == "error" and isinstance(value, str):
            data["error_message"] = _text(value, _TEXT_MAX)
        elif name in {"result_code", "error_code"} and (code := _code(value)) is not None:
            data[name] = code
        elif name == "duration_ms" and type(value) is int and 0 <= value < _BIG:
            data[name] = value
    return data


def _code(value: object) -> str | None:
    if type(value) is int:
        return str(value) if -_BIG < value < _BIG else None
    return _text(value, _CODE_MAX) if isinstance(value, str) else None


def _result(value: object) -> object:
    """The result as it is, or else its text."""
    if _fits(value, _DEPTH_MAX):
        size = len(canonical(value).encode())
        if size <= RESULT_MAX:
            return value
    text = _output_of(value)
    shown = text.encode()[:RESULT_MAX].decode(errors="ignore").replace("\0", "\ufffd")
    return {"output": shown if len(shown) == len(text) else f"{shown}\n(cut)"}


def _output_of(value: object) -> str:
    match value:
        case str(text) | {"output": str(text)}:
            return text
        case _:
            return canonical(value)


def _fits(value: object, depth: int) -> bool:
    """Whether a database can keep it."""
    match value:
        case str():
            return "\0" not in value
        case dict():
            return depth > 0 and all(
                "\0" not in key and _fits(each, depth - 1) for key, each in value.items()
            )
        case list():
            return depth > 0 and all(_fits(each, depth - 1) for each in value)
        case int():
            return -_BIG < value < _BIG
        case _:
            return True


def _text(value: str, most: int) -> str:
    return value[:most].replace("\0", "\ufffd")
