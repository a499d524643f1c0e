"""What the page about platforms shows is read as it stands, and its tables are whole."""

from __future__ import annotations

import re

from onward.channels.platform import file
from onward.channels.platform.file import presets, read
from tests.reader import page, table

PAGE = page("platform.md")


def test_every_description_on_the_page_is_read():
    blocks = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    assert [name for text in blocks for name in read(text)] == ["aep", "tb", "things", "updates"]


def test_the_page_names_every_key_of_a_description_and_every_preset():
    named = {key for row in table(PAGE, "key") for key in row[0].split(", ")}
    assert named == set(file._Description.model_fields)
    assert {row[0] for row in table(PAGE, "preset")} == set(presets())
