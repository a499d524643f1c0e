"""The page as it is served: kept by browsers for ever, compressed, and under a strict policy."""

from __future__ import annotations

import gzip
import re

import httpx2
import pytest
from playwright.sync_api import expect

from onward.dashboard import site
from tests.browser.conftest import OpenPage
from tests.browser.ground import Ground


@pytest.fixture
def nobody(ground: Ground):
    with httpx2.Client(base_url=ground.address) as client:
        yield client


def served(nobody: httpx2.Client, name: str) -> str:
    """The address of a file, as the page names it."""
    found = re.search(r"dashboard/\w+/", nobody.get("/").text)
    assert found is not None
    return f"/{found[0]}{name}"


def test_the_page_is_asked_for_again_and_its_files_are_not(nobody: httpx2.Client):
    page = nobody.get("/")
    assert page.headers["cache-control"] == "no-cache"
    again = nobody.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    script = nobody.get(served(nobody, "main.js"))
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-encoding"] == "gzip"


def test_whoever_cannot_unpack_gets_it_as_it_is(nobody: httpx2.Client):
    path = served(nobody, "main.js")
    plain = nobody.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == nobody.get(path, headers={"Accept-Encoding": "gzip"}).content
    assert all(gzip.decompress(file.packed) == file.content for file in site().files.values())


@pytest.mark.parametrize(
    "path", ["/dashboard/0000000000000000/main.js", "/dashboard/{digest}/..%2f__init__.py"]
)
def test_files_of_another_version_or_from_elsewhere_are_not_there(nobody: httpx2.Client, path: str):
    answer = nobody.get(path.replace("/dashboard/{digest}/", served(nobody, "")))
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_nothing_is_allowed_that_the_page_does_not_need(nobody: httpx2.Client):
    policy = nobody.get("/").headers["content-security-policy"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy


def test_everything_that_a_page_imports_is_named_beforehand(open_page: OpenPage):
    """What is asked for one after the other, as it is found out, makes a page slow."""
    page = open_page("vic", "jobs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    loaded = page.evaluate(
        "() => performance.getEntriesByType('resource').map((each) => each.name)"
        ".filter((name) => name.endsWith('.js'))"
    )
    named = page.evaluate(
        "() => [...document.querySelectorAll('link[rel=modulepreload], script[src]')]"
        ".map((each) => each.href || each.src)"
    )
    late = {name for name in loaded if name not in named and "stream-worker" not in name}
    assert not {re.sub(r".*/dashboard/\w+/", "", name) for name in late}
