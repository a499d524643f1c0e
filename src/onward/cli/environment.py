"""Reads the settings for a command, and tells a wrong one in one line."""

from __future__ import annotations

from pydantic import ValidationError

from onward.errors import InvalidInput
from onward.settings import Settings


def settings() -> Settings:
    """Return the settings of this process, or say which variable is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise InvalidInput(f"ONWARD_{name}", first["msg"]) from error
