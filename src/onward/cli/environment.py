"""What a command runs on: the settings, a wrong one told in one line, and their database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def database_of(settings: Settings) -> Iterator[str]:
    """Give the address of the database that the settings name, or of the embedded one."""
    if settings.database_url:
        yield settings.database_url
        return
    from onward.embedded import servers

    with servers(settings.data_dir) as running:
        yield running.database_url
