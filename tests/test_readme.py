"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onward.wiring import Onward

_README = Path(__file__).parent.parent / "README.md"


def code_block(beginning: str) -> str:
    blocks: list[str] = re.findall(
        r"```python\n(.*?)```", _README.read_text(encoding="utf-8"), re.DOTALL
    )
    return next(block for block in blocks if block.startswith(beginning))


async def test_the_service_of_the_readme_prints_what_it_says(
    opened: Onward, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    code = code_block("import asyncio")
    said = re.findall(r"print\(.*# (.+)", code)
    monkeypatch.setenv("ONWARD_DATABASE_URL", opened.database_url)
    monkeypatch.setenv("ONWARD_REQUIRE_DURABLE", "false")
    scope: dict[str, object] = {}

    exec(code.replace("asyncio.run(main())", ""), scope)  # noqa: S102 - our own README
    await scope["main"]()  # type: ignore[operator]  # the coroutine function that it defines

    assert said
    assert capsys.readouterr().out.splitlines() == said


def test_the_registry_of_the_readme_answers_what_it_says():
    code = code_block("from onward.core")
    *setup, last = code.strip().splitlines()
    scope: dict[str, object] = {"clock": lambda: 0.0}

    exec("\n".join(setup), scope)  # noqa: S102 - our own README
    expression, said = last.split("#")

    assert eval(expression, scope) == said.split(":")[0].strip()  # noqa: S307 - our own README
