"""The watch over pages sees what it is for: a test that could not fail would prove nothing."""

from __future__ import annotations

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.eyes import Watch, accessible, fits
from tests.cli.running import until

WRONG = {
    "uncaught": "setTimeout(() => { throw new Error('planted'); })",
    "unhandled": "setTimeout(() => { Promise.reject(new Error('planted')); })",
    "console: planted": "console.error('planted')",
    "policy: style-src": "document.body.setAttribute('style', 'color: red')",
    "policy: img-src": "{ const i = new Image(); i.src = 'http://localhost:9/x.png'; }",
    "policy: require-trusted-types-for": "try { document.body['inner' + 'HTML'] = 'x'; } catch {}",
    "elsewhere": "window.open('http://localhost:9/')",
}


@pytest.mark.parametrize(("told", "deed"), WRONG.items())
def test_what_no_page_may_do_is_seen(open_page: OpenPage, told, deed):
    page = open_page()
    page.get_by_label("Your key").wait_for()
    watch = Watch.of(page)
    assert not watch.found()
    page.evaluate(f"() => {{ {deed} }}")

    def seen() -> bool:
        page.evaluate("() => 1")  # what the browser tells is heard between two calls
        return any(told in sight for sight in watch.found())

    until(seen)
    watch.allowed.add("")


def test_an_answer_of_500_is_seen(open_page: OpenPage):
    page = open_page()
    page.route("**/planted", lambda route: route.fulfill(status=500))
    page.evaluate("() => fetch('/planted')")
    watch = Watch.of(page)
    until(lambda: any("answer 500" in sight for sight in watch.found()))
    watch.allowed.add("")


def test_what_not_everybody_can_use_or_does_not_fit_is_seen(open_page: OpenPage):
    page = open_page()
    page.get_by_label("Your key").wait_for()
    accessible(page)
    fits(page)
    page.evaluate("() => document.querySelector('label').remove()")
    page.evaluate("() => document.querySelector('#key').removeAttribute('placeholder')")
    with pytest.raises(AssertionError, match="label"):
        accessible(page)
    page.evaluate("() => document.querySelector('main').style.setProperty('width', '3000px')")
    with pytest.raises(AssertionError, match="3000 px"):
        fits(page)
