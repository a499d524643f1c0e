"""A real service, a real Chromium, and pages that are watched while a test uses them.

Tests here are plain functions with Playwright's blocking calls. For as long as the browser of a
module is there, its event loop is the one that runs in this thread: a test or fixture of this
folder must not be a coroutine, and what has to be awaited is awaited elsewhere (`ground.awaited`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.eyes import DESKTOP, Watch, thorough
from tests.browser.ground import Ground, log_in
from tests.cli.running import folder_for_servers, on_database, onward_up
from tests.databases import copied

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--no-sandbox",  # which a browser of root's cannot have
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

OpenPage = Callable[..., Page]

# What is waited for comes at once, or by the next word of the stream, which is 15 seconds away.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """What a module sets for its service; it overrides this fixture."""
    return {}


@pytest.fixture(scope="module")
def ground(server_url: str, template: str, settings: dict[str, str]) -> Iterator[Ground]:
    """A service of the module's own, with somebody of each role."""
    if CHROMIUM is None:
        pytest.skip("not run: needs chromium, which comes with Debian's chromium")
    with (
        folder_for_servers() as folder,
        copied(server_url, template) as url,
        onward_up(folder, **{**on_database(url), **settings}) as up,
        up.client() as client,
    ):
        yield Ground.made(up, client, url)


@pytest.fixture(scope="module")
def browser(ground: Ground) -> Iterator[Browser]:
    """Chromium; it is gone before the service and the database are."""
    assert ground.address
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def as_asked(pytestconfig: pytest.Config) -> Iterator[None]:
    """Look as closely as the run asks for."""
    before = thorough.set(bool(pytestconfig.getoption("--proof")))
    yield
    thorough.reset(before)


@pytest.fixture
def open_page(browser: Browser, ground: Ground) -> Iterator[OpenPage]:
    """Open the dashboard in a browser of its own, as a person, or as nobody.

    What a page must never do fails the test, whatever it was about.
    """
    watches: list[Watch] = []
    with ExitStack() as stack:

        def opened(person: str | None = None, path: str = "", *, address: str = "") -> Page:
            context = browser.new_context(
                base_url=address or ground.address, viewport=DESKTOP, reduced_motion="reduce"
            )
            stack.callback(context.close)
            context.set_default_timeout(30_000)
            watches.append(Watch.over(context, address or ground.address))
            page = context.new_page()
            if person is None:
                page.goto(f"/#/{path}")
            else:
                log_in(page, ground.keys[person], path)
            return page

        yield opened
        found = [sight for watch in watches for sight in watch.found()]
    assert not found, "\n".join(found)


@pytest.fixture
def watches(request: pytest.FixtureRequest) -> Callable[[Page], Watch]:
    """Find the watch over a page, to allow it what its test is about."""
    assert request.getfixturevalue("open_page")
    return Watch.of
