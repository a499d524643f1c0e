"""A Chromium to measure the dashboard with: what it painted when, and how much it was sent.

What a page does is measured by the browser itself: when the heading of the job was painted (element
timing), when the picture of the hosts was complete, which frames took too long (long animation
frames), what came over the network, and what is left in memory after a collection.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, CDPSession, Page, async_playwright

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # A page that nobody looks at would be slowed down on purpose.
    *("--disable-renderer-backgrounding", "--disable-background-timer-throttling"),
)
_BOUND_MS: Final = 60_000
_LOOKS_APART_S: Final = 0.4
_QUIET_S: Final = 1.0  # without a request: everything has been asked for

# Runs before anything of the page's own.
_WATCH: Final = """
window.seen = {useful: null, grid: null, frames: [], worst: 0, ticks: 0};
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.identifier === "onward-job") window.seen.useful ??= entry.renderTime;
  }
}).observe({type: "element", buffered: true});
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.name !== "onward-grid" || window.seen.grid !== null) continue;
    // The frame that shows it is over when the next one begins.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      window.seen.grid ??= performance.now();
    }));
  }
}).observe({type: "mark", buffered: true});
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.seen.frames.push([entry.startTime, entry.duration]);
}).observe({type: "long-animation-frame", buffered: true});
// What a frame takes: from its first script until the first task after it was painted.
const painted = new MessageChannel();
painted.port1.onmessage = ({data}) => {
  window.seen.worst = Math.max(window.seen.worst, performance.now() - data);
};
requestAnimationFrame(function tick() {
  window.seen.ticks += 1;
  painted.port2.postMessage(performance.now());
  requestAnimationFrame(tick);
});
"""


@dataclass(frozen=True, slots=True)
class Opened:
    """How a page came up."""

    useful_ms: float
    grid_ms: float
    received_bytes: int


def missing() -> bool:
    """Whether there is no Chromium here."""
    return _found() is None


def _found() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=_found(), args=list(_FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def logged_in(browser: Browser, address: str, key: str) -> AsyncIterator[BrowserContext]:
    """Give a browser that has shown its key, and has nothing else in its cache."""
    context = await browser.new_context(
        base_url=address, viewport={"width": 1440, "height": 900}, color_scheme="dark"
    )
    context.set_default_timeout(_BOUND_MS)
    await context.add_init_script(_WATCH)
    try:
        answer = await context.request.post("/session", data={"key": key})
        assert answer.ok, await answer.text()  # noqa: S101 - the key is our own
        yield context
    finally:
        await context.close()


async def opened(context: BrowserContext, path: str) -> tuple[Page, Opened]:
    """Open a page, and return it once it has asked for everything and shows it."""
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    traffic = await _Traffic.of(session)
    await page.goto(f"/#/{path}")
    await page.wait_for_function("() => window.seen.useful && window.seen.grid")
    await traffic.quiet()
    useful, grid = await page.evaluate("() => [window.seen.useful, window.seen.grid]")
    return page, Opened(useful, grid, traffic.received)


async def heap_bytes(page: Page, looks: int = 5) -> int:
    """Return what the page keeps in memory, after everything else was collected.

    The least of a few looks: an answer that is just being read is not kept.
    """
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.enable")
    found = []
    for _ in range(looks):
        await session.send("HeapProfiler.collectGarbage")
        used = await session.send("Runtime.getHeapUsage")
        found.append(int(used["usedSize"]))
        await asyncio.sleep(_LOOKS_APART_S)
    await session.detach()
    return min(found)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a while."""

    count: int
    slow: int  # of more than 50 ms, by the browser's own account
    worst_ms: float

    def __add__(self, other: Frames) -> Frames:
        return Frames(
            self.count + other.count,
            self.slow + other.slow,
            max(self.worst_ms, other.worst_ms),
        )


async def frames(page: Page) -> Frames:
    """Return the frames since they were last asked for."""
    told = await page.evaluate(
        "() => { const {frames, worst, ticks} = window.seen;"
        " Object.assign(window.seen, {frames: [], worst: 0, ticks: 0});"
        " return [ticks, frames.map((frame) => frame[1]), worst]; }"
    )
    count, slow, worst = told
    return Frames(int(count), len(slow), max([float(worst), *slow]))


class _Traffic:
    """What came over the network, as it came: compressed, with its headers."""

    def __init__(self) -> None:
        self.received = 0
        self._last = math.inf

    @classmethod
    async def of(cls, session: CDPSession) -> _Traffic:
        traffic = cls()
        session.on("Network.dataReceived", traffic._some)
        session.on("Network.responseReceived", traffic._head)
        await session.send("Network.enable")
        return traffic

    def _some(self, told: dict[str, Any]) -> None:
        self.received += int(told["encodedDataLength"])
        self._last = asyncio.get_running_loop().time()

    def _head(self, told: dict[str, Any]) -> None:
        self.received += int(told["response"]["encodedDataLength"])
        self._last = asyncio.get_running_loop().time()

    async def quiet(self) -> None:
        """Wait until nothing has come for a while."""
        loop = asyncio.get_running_loop()
        while loop.time() - min(self._last, loop.time()) < _QUIET_S:  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(0.05)
