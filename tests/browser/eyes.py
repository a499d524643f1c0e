"""Watching pages: what none of them may do, whether everybody can use them, and how they look."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response

DESKTOP: Final[Any] = {"width": 1440, "height": 900}
PHONE: Final[Any] = {"width": 390, "height": 844}
NARROW: Final[Any] = {"width": 360, "height": 740}
SIZES: Final = {"desktop": DESKTOP, "phone": PHONE}
SCHEMES: Final[tuple[Any, ...]] = ("light", "dark")

_ASKED: Final = {("desktop", "light"), ("phone", "dark")}
thorough: Final = ContextVar("thorough", default=False)

# Where pictures are kept: they are to be looked at.
ARTEFACTS: Final = Path(
    os.environ.get("ONWARD_ARTEFACTS") or Path(__file__).parents[2] / ".artefacts"
)

# Runs before anything of the page's own, in every page and frame.
_TELL: Final = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.effectiveDirective} forbids ${event.blockedURI}`);
});
addEventListener("unhandledrejection", (event) => console.error(`unhandled: ${event.reason}`));
"""
# What Chromium itself writes about an answer that is no success; which ones may be is judged below.
_NO_SUCCESS: Final = "Failed to load resource: "


@dataclass
class Watch:
    """What the pages of one browser have done that none may do."""

    origin: str
    # What a test is about: `net::` where it cuts the line, a status where it brings one about.
    allowed: set[str] = field(default_factory=set)
    _seen: list[str] = field(default_factory=list)

    @classmethod
    def over(cls, context: BrowserContext, address: str) -> Watch:
        """Watch all pages of a context."""
        watch = cls(_origin(address))
        context.add_init_script(_TELL)
        context.on("console", watch._console)
        context.on("weberror", lambda error: watch._seen.append(f"uncaught: {error.error}"))
        context.on("request", watch._request)
        context.on("response", watch._response)
        _watches[context] = watch
        return watch

    @staticmethod
    def of(page: Page) -> Watch:
        """The watch over a page."""
        return _watches[page.context]

    def found(self) -> list[str]:
        """What was seen and not allowed."""
        return [
            sight for sight in self._seen if not any(allowed in sight for allowed in self.allowed)
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        if message.text.startswith(_NO_SUCCESS) and "net::" not in message.text:
            return
        self._seen.append(f"console: {message.text} ({message.location.get('url')})")

    def _request(self, request: Request) -> None:
        if _origin(request.url) != self.origin:
            self._seen.append(f"elsewhere: {request.method} {request.url[:200]}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self._seen.append(f"answer {response.status}: {response.request.method} {response.url}")


_watches: WeakKeyDictionary[BrowserContext, Watch] = WeakKeyDictionary()


def accessible(page: Page) -> None:
    """Check that everybody can use what is shown, as far as a machine can tell."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe())
    # What a policy allows is not asked for here: the script does not come from the page.
    found = page.evaluate("() => axe.run({resultTypes: ['violations']})")
    told = [
        f"{rule['id']}: {rule['help']}\n"
        + "\n".join(
            f"    {node['html'][:200]}\n    {node['failureSummary']}" for node in rule["nodes"]
        )
        for rule in found["violations"]
    ]
    assert not told, "\n".join(told)


def fits(page: Page) -> None:
    """Check that nothing is wider than the page, so that nobody has to scroll sideways."""
    wide = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1], f"{wide[0]} px of content on {wide[1]} px"


def looked_at(page: Page, name: str) -> None:
    """Check a page in both sizes and both schemes, and keep a picture of each.

    Whether everybody can use it is asked of each size and of each scheme; of all four together with
    `--proof`.
    """
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=ARTEFACTS / f"{name}-{size}-{scheme}.png")
            if thorough.get() or (size, scheme) in _ASKED:
                accessible(page)
        fits(page)
    page.set_viewport_size(NARROW)
    fits(page)
    page.set_viewport_size(DESKTOP)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")


@cache
def _axe() -> str:
    return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
