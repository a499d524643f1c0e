"""Trading: the book, orders and the account, each change about what was seen and done once."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import Watch, looked_at
from tests.browser.ground import Ground
from tests.cli.running import until

ORDERS = {"buy": "/api/v1/trading/purchase-orders", "sell": "/api/v1/trading/sell-orders"}
items = count(100)


@pytest.fixture
def item(ground: Ground) -> int:
    """An item that nobody else trades with, of which Tim has ten; both have money."""
    number = next(items)
    for person in ("tim", "tom"):
        body = {"user_id": person, "item_id": number, "quantity": 10}
        ground.client.post("/api/v1/trading/items", json=body).raise_for_status()
        move(ground, person, "deposit", 1_000_000)
    return number


def move(ground: Ground, person: str, kind: str, amount: int) -> None:
    """Move money from elsewhere."""
    _, etag = ground.seen("/api/v1/billing/account", by=person)
    with ground.calling(person) as client:
        answer = client.post(
            f"/api/v1/billing/{kind}", json={"amount": amount}, headers={"If-Match": etag}
        )
    assert answer.status_code == 202, answer.text


def place(ground: Ground, person: str, side: str, item: int, price: int) -> int:
    """Place an order from elsewhere; returns its number."""
    _, etag = ground.seen(ORDERS[side], by=person)
    with ground.calling(person) as client:
        answer = client.post(
            ORDERS[side], json={"item_id": item, "price": price}, headers={"If-Match": etag}
        )
    assert answer.status_code == 202, answer.text
    return int(answer.json()["id"])


def orders(ground: Ground, person: str, side: str, item: int) -> list[dict[str, Any]]:
    found = ground.seen(ORDERS[side], by=person)[0]["items"]
    return [order for order in found if order["item_id"] == item]


def account(ground: Ground, person: str) -> dict[str, Any]:
    return ground.seen("/api/v1/billing/account", by=person)[0]


def trading(open_page: OpenPage, person: str, item: int) -> Page:
    page = open_page(person, f"trading?item={item}")
    expect(page.get_by_role("heading", name=f"Book of item {item}")).to_be_visible()
    return page


def ask(page: Page, side: str, price: str) -> None:
    """Fill in an order and place it."""
    page.get_by_role("radio", name=f"to {side}").check()
    page.get_by_label("At most" if side == "buy" else "At least").fill(price)
    page.get_by_role("button", name=re.compile(f"^{side.title()} one of item")).click()


def test_the_book_is_shown_as_a_picture_and_as_prices(open_page: OpenPage, ground, item):
    for n, price in enumerate((9_000, 8_900, 8_900, 8_500, 8_000)):
        place(ground, "tim" if n % 2 else "tom", "buy", item, price)
    for n, price in enumerate((9_100, 9_200, 9_200, 9_200, 9_900)):
        place(ground, "tim" if n % 2 else "tom", "sell", item, price)
    page = trading(open_page, "tom", item)
    picture = page.get_by_role("img", name="Depth of the book: 5 orders to buy, 5 orders to sell")
    expect(picture).to_be_visible()
    expect(page.get_by_role("button", name="Sell at 90.00 EUR")).to_be_visible()
    expect(page.get_by_role("button", name="Buy at 92.00 EUR")).to_be_visible()
    between = page.locator(".figure", has_text="between them")
    expect(between).to_contain_text("1.00")
    looked_at(page, "trading")


def test_the_book_of_a_former_item_is_gone_and_does_not_come_back(open_page: OpenPage):
    """Its prices would be one press from an order for the item that is looked at now."""
    page = trading(open_page, "tom", 1)
    former, other = (page.get_by_role("heading", name=f"Book of item {n}") for n in (1, 99))
    held: dict[str, Route] = {}

    def hold(route: Route) -> None:
        held.setdefault(route.request.url.partition("item_id=")[2], route)

    with page.expect_request(re.compile("/trading/book")):
        page.route(re.compile("/trading/book"), hold)
    field = page.get_by_role("spinbutton", name="Item")
    field.fill("99")
    with page.expect_request(re.compile("/trading/book.*item_id=99")):
        field.press("Enter")
    expect(former).to_have_count(0)
    held["99&depth=20"].continue_()
    expect(other).to_be_visible()
    with page.expect_response(re.compile("/trading/book.*item_id=1&")):
        held["1&depth=20"].continue_()
    page.evaluate("() => new Promise((drawn) => setTimeout(() => requestAnimationFrame(drawn)))")
    assert other.is_visible()


def test_the_tabs_are_turned_with_the_arrow_keys(open_page: OpenPage):
    page = trading(open_page, "tom", 1)
    page.get_by_role("tab", name="Orders to buy").focus()
    page.keyboard.press("ArrowLeft")
    items_tab = page.get_by_role("tab", name="Items")
    expect(items_tab).to_be_focused()
    expect(items_tab).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("table", name="Orders to buy")).to_be_visible()


def test_a_price_of_the_book_becomes_an_order_and_a_deal(open_page: OpenPage, ground, item):
    place(ground, "tim", "sell", item, 9_000)
    before = account(ground, "tom")["available"]
    page = trading(open_page, "tom", item)
    page.get_by_role("button", name="Buy at 90.00 EUR").click()
    expect(page.get_by_label("At most")).to_have_value("90.00")
    page.get_by_role("button", name=f"Buy one of item {item}").click()
    expect(
        page.get_by_text(re.compile(r"Order \d+ is placed: to buy at 90\.00 EUR"))
    ).to_be_visible()
    # The page sees the deal by itself.
    order = page.get_by_role("table", name="Orders to buy").get_by_role("row").nth(1)
    expect(order).to_contain_text("filled")
    page.get_by_role("tab", name="Deals").click()
    expect(page.get_by_role("table", name="Deals").get_by_role("row").nth(1)).to_contain_text(
        f"bought item {item}"
    )
    assert account(ground, "tom")["available"] == before - 9_000 - 22
    looked_at(page, "trading-deals")


def test_an_order_is_withdrawn_and_gives_back_what_it_held(open_page: OpenPage, ground, item):
    before = account(ground, "tom")["available"]
    page = trading(open_page, "tom", item)
    ask(page, "buy", "12.34")
    until(lambda: len(orders(ground, "tom", "buy", item)) == 1)
    order = orders(ground, "tom", "buy", item)[0]
    assert order["price"] == 1_234
    page.get_by_role("button", name=f"Withdraw order {order['id']}").click()
    expect(page.get_by_text(f"Order {order['id']} is withdrawn")).to_be_visible()
    assert orders(ground, "tom", "buy", item)[0]["status"] == "CANCELLED"
    assert account(ground, "tom")["available"] == before


def test_an_order_that_was_filled_meanwhile_is_said_to_be_so(open_page: OpenPage, ground, item):
    order = place(ground, "tom", "buy", item, 5_000)
    page = trading(open_page, "tom", item)
    button = page.get_by_role("button", name=f"Withdraw order {order}")
    expect(button).to_be_visible()
    # Nothing new is shown until the button was pressed.
    page.route("**/api/v1/trading/purchase-orders?*", lambda route: route.abort())
    Watch.of(page).allowed.add("net::ERR_FAILED")
    place(ground, "tim", "sell", item, 5_000)
    until(lambda: orders(ground, "tom", "buy", item)[0]["status"] == "FILLED")
    button.click()
    expect(page.get_by_text(f"It changed under you: order {order} is filled.")).to_be_visible()


def test_money_is_moved_as_people_write_it(open_page: OpenPage, ground, item):
    before = account(ground, "tom")["available"]
    page = trading(open_page, "tom", item)
    page.get_by_label("Amount").fill("1,234.5")
    page.get_by_role("button", name="Deposit").click()
    expect(page.get_by_text("Deposited: 1,234.50 EUR")).to_be_visible()
    page.get_by_label("Amount").fill("0.07")
    page.get_by_role("button", name="Withdraw", exact=True).click()
    expect(page.get_by_text("Withdrawn: 0.07 EUR")).to_be_visible()
    assert account(ground, "tom")["available"] == before + 123_450 - 7
    page.get_by_role("button", name="Its ledger").click()
    ledger = page.get_by_role("table", name="Ledger")
    expect(ledger.get_by_role("row").nth(1)).to_contain_text("\N{MINUS SIGN}0.07 EUR")
    expect(ledger.get_by_role("row").nth(2)).to_contain_text("+1,234.50 EUR")
    looked_at(page, "trading-ledger")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("1.234", "EUR has 2 digits behind the point."),
        ("abc", "Write an amount such as 1,234.56."),
        ("-5", "Write an amount such as 1,234.56."),
        ("1e3", "Write an amount such as 1,234.56."),
        ("12,50", "Write an amount such as 1,234.56."),
        ("0.00", "An amount is more than nothing."),
        ("10000000000.01", "At most 10,000,000,000.00 at once."),
    ],
)
def test_what_is_no_amount_is_said_beside_the_field(open_page: OpenPage, written, told):
    page = trading(open_page, "tom", 1)
    page.get_by_label("Amount").fill(written)
    page.get_by_role("button", name="Deposit").click()
    expect(page.get_by_role("alert")).to_have_text(told)
    expect(page.get_by_label("Amount")).to_have_value(written)


def test_currencies_have_the_digits_that_they_have(open_page: OpenPage, item):
    page = open_page("tom", f"trading?item={item}&currency=JPY")
    page.get_by_label("Amount").fill("1500")
    page.get_by_role("button", name="Deposit").click()
    expect(page.get_by_text("Deposited: 1,500 JPY")).to_be_visible()
    page.get_by_label("Amount").fill("1.5")
    page.get_by_role("button", name="Deposit").click()
    expect(page.get_by_role("alert")).to_have_text("JPY has no digits behind a point.")
    page.get_by_label("Currency").fill("xxx")
    page.get_by_label("Currency").press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("is not one of EUR")


def frozen(page: Page) -> None:
    """From now on, the page does not look by itself."""
    page.clock.install()


def test_an_account_that_changed_is_shown_and_moved_all_the_same(open_page: OpenPage, ground, item):
    page = trading(open_page, "tom", item)
    frozen(page)
    before = account(ground, "tom")["available"]
    move(ground, "tom", "deposit", 5_000)
    page.get_by_label("Amount").fill("1.00")
    with page.expect_response(re.compile("/deposit")) as answer:
        page.get_by_role("button", name="Deposit").click()
    page.clock.run_for(100)
    assert answer.value.status == 412
    told = page.get_by_role("alert")
    expect(told).to_contain_text("It changed under you")
    expect(told.get_by_role("row", name="available").locator("ins")).not_to_be_empty()
    assert account(ground, "tom")["available"] == before + 5_000
    with page.expect_response(re.compile("/deposit")) as again:
        told.get_by_role("button", name="Deposit all the same").click()
    assert again.value.status == 202
    assert account(ground, "tom")["available"] == before + 5_100


def test_an_order_after_another_of_ones_own_is_asked_for_again(open_page: OpenPage, ground, item):
    """Another tab has placed one: one press is one order, about the orders that were seen."""
    page = trading(open_page, "tom", item)
    frozen(page)
    place(ground, "tom", "buy", item, 4_000)
    ask(page, "buy", "41")
    page.clock.run_for(100)
    told = page.get_by_role("alert")
    expect(told).to_contain_text("It changed under you")
    expect(told.get_by_role("row", name="your last order").locator("ins")).to_contain_text(
        "at 40.00 EUR"
    )
    assert [order["price"] for order in orders(ground, "tom", "buy", item)] == [4_000]
    with page.expect_response(lambda r: r.request.method == "POST") as again:
        told.get_by_role("button", name="Buy all the same").click()
    assert again.value.status == 202
    assert [order["price"] for order in orders(ground, "tom", "buy", item)] == [4_100, 4_000]


def test_what_was_done_without_an_answer_is_done_once(open_page: OpenPage, ground, item):
    """The answer is lost on the way; the same is said again, with the same key."""
    page = trading(open_page, "tom", item)
    Watch.of(page).allowed.add("net::ERR_FAILED")
    before = account(ground, "tom")["available"]
    lost = iter([True])

    def lose_the_answer(route: Route) -> None:
        if next(lost, False):
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route("**/api/v1/billing/deposit", lose_the_answer)
    page.get_by_label("Amount").fill("2.00")
    page.get_by_role("button", name="Deposit").click()
    told = page.get_by_role("alert").filter(has_text="No answer came")
    expect(told).to_be_visible()
    with page.expect_response(re.compile("/deposit")) as again:
        told.get_by_role("button", name="Say it again").click()
    assert again.value.status == 202
    assert again.value.headers["idempotency-replayed"] == "true"
    expect(page.get_by_text("Deposited: 2.00 EUR")).to_be_visible()
    assert account(ground, "tom")["available"] == before + 200


def test_what_cannot_be_paid_is_refused_in_place(open_page: OpenPage, ground, item):
    page = trading(open_page, "tom", item)
    available = account(ground, "tom")["available"]
    page.get_by_label("Amount").fill(str(available))  # a hundred times as much
    page.get_by_role("button", name="Withdraw", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
    assert account(ground, "tom")["available"] == available


def test_an_admin_brings_items_in(open_page: OpenPage):
    number = next(items)
    page = trading(open_page, "root", number)
    page.get_by_role("button", name="Bring in items").click()
    page.get_by_label("Who gets them").fill("tom")
    page.get_by_label("How many").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Bring in").click()
    expect(page.get_by_text("Brought in.")).to_be_visible()
    tom = trading(open_page, "tom", number)
    tom.get_by_role("tab", name="Items").click()
    row = tom.get_by_role("row").filter(has=tom.get_by_role("link", name=f"item {number}"))
    expect(row).to_contain_text("3")
    expect(tom.get_by_role("button", name="Bring in items")).to_have_count(0)
