"""Contexts: several services in one file, which of them is meant, and whose key goes where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from onward.cli import contexts
from onward.cli.contexts import Config, Context, target
from onward.cli.exits import Usage
from onward.cli.tree import Given
from onward.errors import InvalidInput
from onward.settings import Settings
from tests.cli.crew import Crew, seated

PROD, TEST, NONE = "https://prod.example.com", "https://test.example.com", "https://x.example.com"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file with two contexts, of which the first is the current one."""
    path = tmp_path / "config.toml"
    prod, test = Context(PROD, key="of-prod"), Context(TEST, key_file="~/test.key")
    contexts.write(path, Config("prod", 25, {"prod": prod, "test": test}))
    return path


def chosen(config: Path, given: Given, **settings: object) -> tuple[str | None, str | None]:
    """The address that is meant, and the key that it is shown."""
    found = target(Settings(config=config, **settings), given)  # type: ignore[arg-type]
    return found.url, found.key or (found.key_file.name if found.key_file else None)


ENVIRONMENT = {"url": NONE, "key": SecretStr("of-env")}


@pytest.mark.parametrize(
    ("given", "settings", "url", "key"),
    [
        (Given(), {}, PROD, "of-prod"),
        (Given(), {"context": "test"}, TEST, "test.key"),
        (Given(), {"context": "test", **ENVIRONMENT}, NONE, "of-env"),
        (Given(), {"key": SecretStr("of-env")}, PROD, "of-env"),
        (Given(context="test"), ENVIRONMENT, TEST, "test.key"),
        (Given(url=TEST), {}, TEST, None),
        (Given(url=PROD), {}, PROD, "of-prod"),
        (Given(url=NONE), ENVIRONMENT, NONE, "of-env"),
        (Given(url=NONE, context="prod"), {}, NONE, None),
    ],
)
def test_who_said_it_last_does_not_count_but_who_said_it_nearest(
    config: Path, given: Given, settings: dict[str, object], url: str, key: str | None
):
    """A key of a context is never shown to another address."""
    assert chosen(config, given, **settings) == (url, key)


def test_without_anything_it_is_the_service_of_this_machine(tmp_path: Path):
    assert chosen(tmp_path / "none.toml", Given()) == (None, None)


def test_a_context_that_is_not_there_is_told_with_those_that_are(config: Path):
    with pytest.raises(Usage, match="there are prod, test"):
        chosen(config, Given(context="staging"))


def test_the_file_is_for_its_owner_alone_and_read_back_as_it_was(config: Path):
    assert config.stat().st_mode & 0o777 == 0o600
    found = contexts.read(config)
    assert (found.current, found.confirm_above) == ("prod", 25)
    assert found.contexts["test"] == Context(TEST, key_file="~/test.key")
    assert "of-prod" not in repr(found)


def test_a_write_that_fails_leaves_the_file_as_it_was(config: Path, monkeypatch):
    before = config.read_text("utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidInput, match="No space left"):
        contexts.write(config, Config())
    assert config.read_text("utf-8") == before
    assert list(config.parent.iterdir()) == [config], "and nothing else"


def test_keys_that_others_can_read_are_warned_of_once(config: Path, capsys):
    for mode, times in ((0o644, 1), (0o600, 0)):
        config.chmod(mode)
        chosen(config, Given())
        assert capsys.readouterr().err.count("others can read") == times


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current = ", "cannot be read"),
        ("curent = 'prod'", "curent: is none of confirm_above, contexts, current"),
        ("current = 3", "takes the name of a context"),
        ("confirm_above = 'many'", "takes a number of hosts"),
        ("contexts = 3", "takes tables"),
        ("[contexts.x]\nkey = 'k'", "takes at least url"),
        ("[contexts.x]\nurl = 'https://x'\nkey = 3", "contexts.x.key: takes text"),
        ("[contexts.x]\nurl = 'https://x'\ntoken = 'k'", "contexts.x.token: is none of"),
    ],
)
def test_a_wrong_file_is_told_with_the_place(tmp_path: Path, text: str, said: str):
    path = tmp_path / "config.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidInput, match=said):
        contexts.read(path)


# As a person uses them


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """A configuration of one's own, and nothing else that names a service."""
    return {"ONWARD_CONFIG": str(tmp_path / "config.toml")}


NOTHING = {"ONWARD_URL": "", "ONWARD_KEY": ""}


def test_contexts_are_added_used_shown_and_removed(crew: Crew, place: dict[str, str]):
    key = crew.keys["ann"]
    nowhere = {**place, **NOTHING}
    listed = crew.run("context", **nowhere)
    assert "`onward context add NAME --url URL` makes one" in listed.told
    added = crew.run(
        "context", "add", "mine", "--url", crew.up.address, given=f"{key}\n", **nowhere
    )
    assert added.code == 0, added
    assert key not in added.said + added.told
    assert crew.run("whoami", "-q", **nowhere).said == "ann\n"

    path = crew.folder / "bob.key"
    path.write_text(crew.keys["bob"])
    words = ("context", "add", "bobs", "--url", crew.up.address, "--key-file", str(path))
    assert crew.run(*words, "--no-use", **nowhere).code == 0
    assert crew.run("whoami", "-q", **nowhere).said == "ann\n"
    assert crew.run("whoami", "-q", "--context", "bobs", **nowhere).said == "bob\n"
    assert crew.run("--context", "bobs", "whoami", "-q", **nowhere).said == "bob\n"
    chosen_by_name = {**nowhere, "ONWARD_CONTEXT": "bobs"}
    assert crew.run("whoami", "-q", **chosen_by_name).said == "bob\n"
    assert crew.run("context", "use", "bobs", **nowhere).code == 0
    assert crew.run("whoami", "-q", **nowhere).said == "bob\n"

    shown = crew.run("context", "show", "--json", **nowhere)
    assert shown.json["url"] == crew.up.address
    assert shown.json["url_from"].startswith("the current context, bobs in ")
    assert shown.json["key_from"] == str(path)
    everything = shown.said + crew.run("context", "list", "-o", "yaml", **nowhere).said
    assert crew.keys["bob"] not in everything
    assert key not in everything

    assert crew.run("context", "remove", "mine", **nowhere).code == 2, "its key would be lost"
    assert crew.run("context", "remove", "mine", "--yes", **nowhere).code == 0
    assert crew.run("context", "remove", "bobs", **nowhere).code == 0, "its key is elsewhere"
    assert crew.run("context", "--json", **nowhere).json == []


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("bad name", "--url", PROD), "k", "takes letters, digits"),
        (("x", "--url", "ftp://x"), "k", "--url: is not the address of a service"),
        (("x", "--url", "http://☃-.example"), "k", "--url: is not the address of a service"),
        (("x", "--url", "http://a..b"), "k", "--url: is not the address of a service"),
        (("x", "--url", PROD, "--key-file", "/a\nb"), "", "--key-file: takes a name"),
        (("x", "--url", PROD, "--key-file", "/\udcff"), "", "--key-file: takes a name"),
        (("x", "--url", PROD), "", "no key on standard input"),
        (("x", "--url", PROD), "two words", "is not a key"),
    ],
)
def test_what_is_no_context_is_told(
    crew: Crew, place: dict[str, str], words: tuple[str, ...], given: str, said: str
):
    ended = crew.run("context", "add", *words, given=given, **place)
    assert ended.code in {1, 2}
    assert said in ended.told
    assert not Path(place["ONWARD_CONFIG"]).exists()


def test_a_key_is_asked_for_without_being_shown(crew: Crew, place: dict[str, str]):
    surroundings = {**crew.environment("ann"), **place}
    words = ("context", "add", "mine", "--url", crew.up.address)
    with seated(words, surroundings) as seat:
        seat.until("Key: ")
        seat.type(crew.keys["ann"])
        assert seat.left() == 0, seat.seen
    assert crew.keys["ann"] not in seat.seen
    assert contexts.read(Path(place["ONWARD_CONFIG"])).contexts["mine"].key == crew.keys["ann"]


def test_a_context_whose_key_cannot_be_read_says_which_file(crew: Crew, place: dict[str, str]):
    words = ("context", "add", "x", "--url", PROD, "--key-file", "/nowhere/key")
    crew.ok(*words, **place)
    ended = crew.run("jobs", **{**place, **NOTHING})
    assert ended.code == 8
    assert "/nowhere/key: cannot be read (No such file or directory)" in ended.told
    shown = crew.run("context", "show", **{**place, **NOTHING})
    assert shown.code == 0
    assert "/nowhere/key: cannot be read" in shown.said


MAKE = ("keys", "make", "phone", "--person", "eve", "--role", "viewer", "--to")


def test_a_key_that_was_not_made_leaves_no_file(crew: Crew, tmp_path: Path):
    path = tmp_path / "eve.key"
    assert crew.run(*MAKE, str(path), who="ann").code == 8
    assert not path.exists()
    crew.ok(*MAKE, str(path))


def test_a_key_that_cannot_be_written_is_shown_and_not_lost(
    crew: Crew, tmp_path: Path, monkeypatch
):
    path = tmp_path / "eve.key"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    made = crew.ok(*MAKE, str(path))
    assert "cannot be written (No space left on device), so it is shown only here:" in made.told
    assert crew.ok("whoami", "-q", ONWARD_KEY=made.said.strip()).said == "eve\n"
    assert not path.exists()
