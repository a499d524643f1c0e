"""A platform is described in a file: what is right is read, and what is wrong is told by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.channels.platform import forms
from onward.channels.platform.description import NO_PLATFORMS, Word
from onward.channels.platform.file import load, presets, read
from onward.channels.platform.pointers import NOWHERE, pointer
from onward.core.lifecycles import PLATFORM, PLATFORM_LENIENT, lifecycle_named
from onward.errors import HostRefused, InvalidInput
from tests.proof_table import Tried

LEAST = """
[aep]
url = "https://aep.example.com/tasks"
body = { device = "{device_id}", content = "{params}" }
"""
CALLBACK: dict[str, Any] = {"task_id": 64, "device_id": "d", "status": 4}


def test_the_least_that_a_platform_needs_is_an_address_and_a_body():
    platform = read(LEAST)["aep"]
    assert (platform.method, platform.lifecycle) == ("POST", PLATFORM.name)
    said = platform.read({"task_id": 64, "device_id": "d", "status": 4})
    assert (said.task_id, said.device_id, said.word) == (64, "d", 4)
    assert said.meaning == Word(str(PLATFORM.moves["deliver"].target)), "our own words and codes"
    assert platform.read(CALLBACK | {"status": "nonsense"}).meaning is None
    for left_out in CALLBACK:
        with pytest.raises(InvalidInput, match=left_out):
            platform.read({key: 1 for key in CALLBACK if key != left_out})


def test_words_are_looked_up_and_no_others_are_known():
    platform = read(
        LEAST
        + """
[aep.words]
begun = "DELIVERED"
broken = { status = "COMPLETED", failed = true }
7 = "TIMEOUT"
"""
    )["aep"]
    deliver, complete, timeout = (
        str(PLATFORM.moves[event].target) for event in ("deliver", "complete", "timeout")
    )
    assert platform.read(CALLBACK | {"status": "begun"}).meaning == Word(deliver)
    assert platform.read(CALLBACK | {"status": "broken"}).meaning == Word(complete, failed=True)
    assert platform.read(CALLBACK | {"status": 7}).meaning == Word(timeout)
    others: tuple[object, ...] = ("BEGUN", "DELIVERED", 4, True, 7.0, None, [], {}, 2**70, "")
    for odd in others:
        assert platform.read(CALLBACK | {"status": odd}).meaning is None


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_describes_a_platform_with_little_added(name: str):
    platform = read(f'[it]\npreset = "{name}"\nurl = "https://it.example.com/"\n')["it"]
    assert platform.lifecycle == PLATFORM_LENIENT.name
    assert platform.url.startswith("https://it.example.com/")
    assert "//" not in platform.url.removeprefix("https://")
    table = lifecycle_named(platform.lifecycle)
    ends = {word.status for word in platform.words.values()} & table.terminal
    assert str(table.moves["complete"].target) in ends
    assert any(word.failed for word in platform.words.values())
    assert platform.cancel_url is not None


def test_a_preset_gives_way_to_what_is_said_besides():
    platform = read(
        """
[tb]
preset = "thingsboard"
url = "https://tb.example.com"
lifecycle = "platform"
headers = { X-Authorization = "Bearer env:TB_TOKEN" }
body = { method = "x" }
[tb.words]
TIMEOUT = { status = "COMPLETED", failed = true }
[tb.callback]
device_id = "/name"
"""
    )["tb"]
    assert platform.lifecycle == PLATFORM.name
    assert platform.body == {"method": "x"}
    assert platform.words["TIMEOUT"].failed
    assert "SUCCESSFUL" in platform.words
    said = platform.read({"id": {"id": "r"}, "name": "pump", "status": "SENT"})
    assert (said.task_id, said.device_id) == ("r", "pump")
    assert "TB_TOKEN" not in repr(platform), "not even the name of the secret"


# One thing wrong in each, and what the message has to name.
WRONG: dict[str, str] = {
    "[aep": "not TOML",
    "aep = 1": "aep: is a table",
    "[Aep]\nurl = 'https://a.example'\nbody = {}": "[Aep]",
    "[a.b]\nurl = 'https://a.example'\nbody = {}": "a.url",
    "[aep]\nbody = {}": "aep.url",
    "[aep]\nurl = 'https://a.example'": "aep.body",
    "[aep]\nurl = 5\nbody = {}": "aep.url",
    "[aep]\nurl = 'http://a.example'\nbody = {}": "insecure",
    "[aep]\nurl = 'ftp://a.example'\nbody = {}": "https",
    "[aep]\nurl = 'https://'\nbody = {}": "aep.url",
    "[aep]\nurl = 'https://[::1'\nbody = {}": "aep.url",
    "[aep]\nurl = 'https://a.example:99999'\nbody = {}": "aep.url",
    "[aep]\nurl = 'https://ä.example'\nbody = {}": "xn--",
    "[aep]\nurl = 'https://a.example/a b'\nbody = {}": "aep.url",
    "[aep]\nurl = 'https://a.example\\@b.example'\nbody = {}": "aep.url",
    "[aep]\nurl = 'https://user:canary@a.example'\nbody = {}": "use headers",
    "[aep]\nurl = 'https://{device_id}.example'\nbody = {}": "path",
    "[aep]\nurl = 'https://a.example/#x'\nbody = {}": "no #",
    "[aep]\nurl = 'https://a.example/{params}'\nbody = {}": "{params}",
    "[aep]\nurl = 'https://a.example/{'\nbody = {}": "brace",
    "[aep]\nurl = 'https://a.example'\nbody = {a = '{nonsense}'}": "aep.body.a",
    "[aep]\nurl = 'https://a.example'\nbody = {a = [{b = '}'}]}": "aep.body.a[0].b",
    "[aep]\nurl = 'https://a.example'\nbody = {a = 2020-01-01}": "aep.body.a",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nurk = 1": "aep.urk",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nlifecycle = 'node'": "aep.lifecycle",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nmethod = 'GET'": "aep.method",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nprivate = 'yes'": "aep.private",
    "[aep]\nurl = 'https://a.example'\nbody = {}\ntimeout_s = 0": "aep.timeout_s",
    "[aep]\nurl = 'https://a.example'\nbody = {}\npreset = 'nobody'": "aep.preset",
    "[aep]\nurl = 'https://a.example'\nbody = {}\ntask_id = 'id'": "aep.task_id",
    "[aep]\nurl = 'https://a.example'\nbody = {}\ntask_id = '/a~2'": "aep.task_id",
    "[aep]\nurl = 'https://a.example'\nbody = {}\ncancel_url = 'https://b.example'": "same server",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nheaders = {Host = 'b'}": "aep.headers.Host",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nheaders = {'A B' = 'b'}": "aep.headers",
    '[aep]\nurl = "https://a.example"\nbody = {}\nheaders = {A = "b\\r\\nC: d"}': "aep.headers.A",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nwords = {a = 'DONE'}": "aep.words.a",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nwords = {a = 4}": "aep.words.a",
    "[aep]\nurl = 'https://a.example'\nbody = {}\nwords = {a = {status = 'SENT', failed = true}}": (
        "aep.words.a"
    ),
    "[aep]\nurl = 'https://a.example'\nbody = {}\ncallback = {task_id = '/a'}": "aep.callback",
}


def test_whatever_is_wrong_with_a_description_is_told_by_its_name(tried: Tried):
    for text, named in WRONG.items():
        with pytest.raises(InvalidInput) as refusal:
            read(text)
        assert named in str(refusal.value), text
        assert "canary" not in str(refusal.value)
        assert "\n" not in str(refusal.value)
    tried("wrong descriptions", len(WRONG), "all refused by name")


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    assert load(None) is NO_PLATFORMS
    path = tmp_path / "platforms.toml"
    with pytest.raises(InvalidInput, match="ONWARD_PLATFORMS"):
        load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="ONWARD_PLATFORMS"):
        load(path)
    path.write_text(LEAST)
    assert set(load(path)) == {"aep"}


# What is filled in

VALUES = {
    "device_id": "d/1 ?#%ü",
    "command_type": 'say "hi"',
    "params": {"volume": 7, "text": "a\nb", "list": [1, "x"], "none": None, "on": True},
    "timeout_s": 2.5,
}


@pytest.mark.parametrize(
    ("form", "filled"),
    [
        ("{params}", VALUES["params"]),
        ("{timeout_s}", 2.5),
        ("{params.list}", [1, "x"]),
        ("{params.none}", None),
        ("volume {params.volume}, {params.on}", "volume 7, true"),
        ("{{{params.volume}}}", "{7}"),
        ("{command_type:json}", '"say \\"hi\\""'),
        ('{{"p": {params.list:json}}}', '{"p": [1, "x"]}'),
        ({"a": ["{params.volume}", 1, True, "b"]}, {"a": [7, 1, True, "b"]}),
    ],
)
def test_a_form_is_filled_in(form: Any, filled: object):
    forms.check("form", form, VALUES)
    assert forms.fill(form, VALUES) == filled


def test_a_value_stays_one_piece_of_an_address():
    form = "https://a.example/devices/{device_id}?c={command_type}"
    assert forms.fill_address(form, VALUES) == (
        "https://a.example/devices/d%2F1%20%3F%23%25%C3%BC?c=say%20%22hi%22"
    )
    for odd in ("", ".", "..", "\ud800"):
        with pytest.raises(HostRefused):
            forms.fill_address("https://a.example/{device_id}/x", {"device_id": odd})


def test_what_the_command_does_not_have_is_a_refusal():
    for form in ("{params.absent}", "a {params.absent}", "a {params.list}", "a {params}"):
        with pytest.raises(HostRefused, match="params"):
            forms.fill(form, VALUES)


# Where things stand

TREE = {"a": {"b/c": [10, {"~": "x"}]}, "": 1, "0": "zero"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", TREE),
        ("/a/b~1c/0", 10),
        ("/a/b~1c/1/~0", "x"),
        ("/", 1),
        ("/0", "zero"),
        ("/a/b~1c/2", NOWHERE),
        ("/a/b~1c/00", NOWHERE),
        ("/a/b~1c/-1", NOWHERE),
        ("/a/b~1c/9999999999999", NOWHERE),
        ("/a/b~1c/0/x", NOWHERE),
        ("/nothing", NOWHERE),
    ],
)
def test_a_pointer_leads_to_one_place_or_nowhere(text: str, found: object):
    assert pointer("p", text).find(TREE) == found
