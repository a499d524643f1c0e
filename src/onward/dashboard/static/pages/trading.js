/** Trading: the book of an item, an order to place, one's account, and what is one's own. */

import { get, getWithVersion, post } from "../api.js";
import { note } from "../parts/dialog.js";
import { openForm } from "../parts/form.js";
import { choose, href } from "../router.js";
import { h } from "../view.js";
import { Change } from "./trading/change.js";
import { depth, levels } from "./trading/depth.js";
import { Lists, ordersOf } from "./trading/lists.js";
import { forField, money, priced, typedAmount } from "./trading/money.js";

/** The stream tells nothing of anybody's money, so it is looked at again and again. */
const LOOK_MS = 2_500;
const DEPTH = 20;
const ACCOUNT = "/api/v1/billing/account";
const DEEDS = { buy: "Buy", sell: "Sell", deposit: "Deposit", withdraw: "Withdraw" };

export default function trading(app, { query }) {
  return new Trading(app, query);
}

class Trading {
  constructor(app, query) {
    this.app = app;
    this.item = query.get("item") ?? "";
    this.currency = query.get("currency") ?? "";
    this.book = null;
    this.account = null; // {data, etag}
    this.orders = {}; // by side: {data, etag}, of which the last order is shown
    this.problem = null;
    this.asked = 0; // how often it was looked
    this.answered = 0; // which of these looks was answered last
    this.changes = {}; // what is under way, by the form that began it
    this.typed = { side: "buy", price: "", amount: "" };
    this.wrong = {};
    this.lists = new Lists(app, query.get("tab"), { withdraw: (order) => this.withdrawOrder(order), turned: () => this.say() });
    this.begin();
    this.timer = setInterval(() => { if (!document.hidden) this.look(); }, LOOK_MS);
  }

  title() {
    return this.item ? `Trading: item ${this.item}` : "Trading";
  }

  close() {
    clearInterval(this.timer);
  }

  heard(message) {
    if (message.type !== "reset") return;
    this.look();
    this.lists.reload();
  }

  /** All that was chosen is in the address. */
  say() {
    choose({ item: this.item, currency: this.currency, tab: this.lists.tab === "buy" ? null : this.lists.tab });
  }

  async begin() {
    if (!this.item) {
      const { items } = await get("/api/v1/trading/items", { limit: 1 }).catch(() => ({ items: [] }));
      this.item ||= String(items[0]?.item_id ?? 1);
    }
    await this.look();
  }

  /** Read the book and the account; if something has happened to it, what is one's own as well. */
  async look() {
    if (!this.item) return;
    const asked = (this.asked += 1);
    const query = { currency: this.currency };
    try {
      const [account, book, buy, sell] = await Promise.all([
        getWithVersion(ACCOUNT, query),
        get("/api/v1/trading/book", { ...query, item_id: this.item, depth: DEPTH }),
        getWithVersion(ordersOf("buy"), { limit: 1 }),
        getWithVersion(ordersOf("sell"), { limit: 1 }),
      ]);
      if (asked < this.answered) return;
      this.answered = asked;
      const moved = this.account && (account.etag !== this.account.etag || buy.etag !== this.orders.buy.etag || sell.etag !== this.orders.sell.etag);
      Object.assign(this, { account, book, orders: { buy, sell }, problem: null });
      if (moved) this.lists.reload();
    } catch (problem) {
      if (asked < this.answered) return;
      this.problem = problem;
    }
    this.app.redraw();
  }

  /** Begin a change that was asked for in one of the forms. */
  start(name, asked) {
    const change = new Change({
      ...asked,
      redraw: this.app.redraw,
      look: () => this.look(),
      done: async (answer) => {
        delete this.changes[name];
        asked.done(answer.data);
        await this.look();
        this.lists.reload();
      },
    });
    this.changes[name] = change;
    change.go();
  }

  leave(name) {
    delete this.changes[name];
    this.app.redraw();
  }

  /** Read what was typed; what is no amount is said beside the field. */
  read(name) {
    try {
      const found = typedAmount(this.typed[name], this.account.data.currency);
      this.wrong[name] = "";
      return found;
    } catch (error) {
      this.wrong[name] = error.message;
      this.app.redraw();
      return null;
    }
  }

  place(event) {
    event.preventDefault();
    const price = this.read("price");
    if (price === null) return;
    const { side } = this.typed;
    const { currency } = this.account.data;
    const item = whole(this.item);
    this.start("order", {
      what: DEEDS[side],
      seen: () => ({ version: this.orders[side].etag, shown: { "your last order": last(this.orders[side].data.items[0]), available: money(this.account.data.available, currency) } }),
      send: (ifMatch, key) => post(ordersOf(side), { item_id: item, price, currency }, { ifMatch, key }),
      done: (order) => {
        this.typed.price = "";
        this.lists.turn(side);
        note(`Order ${order.id} is placed: to ${side} at ${priced(order.price, order.currency)}.`);
      },
    });
  }

  move(kind) {
    const amount = this.read("amount");
    if (amount === null) return;
    const { currency } = this.account.data;
    this.start("account", {
      what: DEEDS[kind],
      seen: () => ({ version: this.account.etag, shown: { available: money(this.account.data.available, currency), "set aside": money(this.account.data.held, currency) } }),
      send: (ifMatch, key) => post(`/api/v1/billing/${kind}`, { amount, currency }, { ifMatch, key }),
      done: (operation) => {
        this.typed.amount = "";
        note(`${kind === "deposit" ? "Deposited" : "Withdrawn"}: ${priced(amount, currency)}; ${money(operation.account.available, currency)} is available.`);
      },
    });
  }

  /** It names no version: an order that was filled meanwhile stays so, and that is said. */
  async withdrawOrder(order) {
    try {
      await post(`${ordersOf(order.side)}/${order.id}/cancel`);
      note(`Order ${order.id} is withdrawn; what it held is available again.`);
    } catch (problem) {
      const changed = problem.code === "order-stands-otherwise";
      note(changed ? `It changed under you: order ${order.id} is ${problem.body.order_status.toLowerCase()}.` : problem.message, "bad");
    }
    await this.look();
    this.lists.reload();
  }

  async issue() {
    const done = await openForm({
      title: "Bring in items",
      lead: h("p", null, "Items come into somebody's account from outside, as money does."),
      values: { user_id: "", item_id: this.item, quantity: "1" },
      fields: [
        { name: "user_id", label: "Who gets them", required: true },
        { name: "item_id", label: "Item", type: "number", min: 1, required: true },
        { name: "quantity", label: "How many", type: "number", min: 1, required: true },
      ],
      action: "Bring in",
      deed: ({ user_id, item_id, quantity }) => post("/api/v1/trading/items", { user_id, item_id: whole(item_id), quantity: whole(quantity) }),
    });
    if (!done) return;
    note("Brought in.");
    this.lists.reload();
  }

  view() {
    return h("div", { class: "stack" }, this.head(), this.problem && h("p", { class: "refusal", role: "alert" }, refused(this.problem)), this.account && this.book ? this.market() : !this.problem && h("p", { class: "footing" }, "Reading…"), this.lists.view());
  }

  head() {
    return h(
      "div",
      { class: "head" },
      h("div", { class: "grow" }, h("h1", null, "Trading"), h("p", { class: "lead" }, `One piece of item ${this.item || "…"} is an order; who comes takes the best price of the other side.`)),
      h(
        "form",
        { class: "filters", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "inline-field" }, "Item", h("input", { type: "number", min: 1, "data-search": true, class: "short-field", value: this.typed.item ?? this.item, oninput: (event) => { this.typed.item = event.target.value; }, onchange: () => this.turnTo() })),
        h("label", { class: "inline-field" }, "Currency", h("input", { type: "text", class: "short-field", maxlength: 3, spellcheck: "false", placeholder: this.account?.data.currency ?? "", value: this.typed.currency ?? this.currency, oninput: (event) => { this.typed.currency = event.target.value; }, onchange: () => this.turnTo() })),
        this.app.may("admin") && h("button", { type: "button", class: "button", onclick: () => this.issue() }, "Bring in items"),
      ),
    );
  }

  /** Look at another item, or at another currency. */
  turnTo() {
    const { item, currency, ...kept } = this.typed;
    this.item = (item ?? this.item).trim() || "1";
    this.currency = (currency ?? this.currency).trim().toUpperCase();
    this.typed = kept;
    this.changes = {};
    // The prices of the former item are gone from the page, and no answer about them counts any more.
    this.book = null;
    this.answered = this.asked + 1;
    this.say();
    this.look();
  }

  market() {
    const { bids, asks, currency } = this.book;
    const { available, held } = this.account.data;
    const own = this.account.data.currency;
    const figure = (label, words, tab) => h(tab ? "a" : "div", { class: "figure", key: label, href: tab ? href(["trading"], { item: this.item, currency: this.currency, tab }) : null }, h("strong", null, words), h("span", null, label));
    return [
      h(
        "div",
        { class: "figures", key: "figures" },
        figure("best price to sell at", bids.length ? money(bids[0].price, currency) : "–"),
        figure("best price to buy at", asks.length ? money(asks[0].price, currency) : "–"),
        figure("between them", bids.length && asks.length ? money(asks[0].price - bids[0].price, currency) : "–"),
        figure(`available, ${own}`, money(available, own), "ledger"),
        figure(`set aside for orders, ${own}`, money(held, own), "buy"),
      ),
      h("div", { class: "columns", key: "market" }, this.bookCard(), h("div", { class: "stack" }, this.orderCard(), this.accountCard())),
    ];
  }

  bookCard() {
    const { book } = this;
    const empty = !book.bids.length && !book.asks.length;
    return h(
      "section",
      { class: "card", "aria-labelledby": "book-title" },
      h("div", { class: "card-head" }, h("h2", { id: "book-title" }, `Book of item ${book.item_id}`), h("span", { class: "depth-key" }, h("span", { class: "tone-good" }, h("span", { class: "swatch" }), "wanted"), h("span", { class: "tone-bad" }, h("span", { class: "swatch" }), "offered"))),
      empty ? h("p", { class: "soft" }, "Nobody wants or offers it. The first order makes the price.") : depth(book),
      levels(book, { onchoose: (side, price) => this.take(side, price) }),
    );
  }

  /** Put a price of the book into the order that would take it. */
  take(side, price) {
    this.typed.side = side;
    this.typed.price = forField(price, this.book.currency);
    this.app.redraw();
    document.getElementById("order-price")?.focus();
  }

  orderCard() {
    const { side } = this.typed;
    const busy = Boolean(this.changes.order?.busy);
    const choice = (value, label) => h("label", { class: "inline-field" }, h("input", { type: "radio", name: "side", value, checked: side === value, onchange: () => { this.typed.side = value; this.app.redraw(); } }), label);
    return h(
      "section",
      { class: "card", "aria-labelledby": "order-title" },
      h("h2", { id: "order-title" }, "Place an order"),
      h(
        "form",
        { class: "stack-tight", onsubmit: (event) => this.place(event) },
        h("fieldset", { class: "sides" }, h("legend", { class: "visually-hidden" }, "Side"), choice("buy", "to buy"), choice("sell", "to sell")),
        this.amountField("price", side === "buy" ? "At most" : "At least", "order-price"),
        h("button", { type: "submit", class: "button button-main", disabled: busy }, busy ? "A moment…" : `${DEEDS[side]} one of item ${this.item}`),
      ),
      this.changes.order?.view(() => this.leave("order")),
    );
  }

  accountCard() {
    const { currency, updated_at, version } = this.account.data;
    const busy = Boolean(this.changes.account?.busy);
    return h(
      "section",
      { class: "card", "aria-labelledby": "account-title" },
      h("h2", { id: "account-title" }, `Account in ${currency}`),
      h("p", { class: "soft" }, updated_at ? `Version ${version}. ` : "Nothing has ever happened to it. ", h("button", { type: "button", class: "link", onclick: () => this.lists.turn("ledger") }, "Its ledger")),
      h(
        "form",
        { class: "stack-tight", onsubmit: (event) => { event.preventDefault(); this.move(event.submitter?.value ?? "deposit"); } },
        this.amountField("amount", "Amount", "account-amount"),
        h("div", { class: "buttons" }, ["deposit", "withdraw"].map((kind) => h("button", { key: kind, type: "submit", value: kind, class: "button", disabled: busy }, DEEDS[kind]))),
      ),
      this.changes.account?.view(() => this.leave("account")),
    );
  }

  amountField(name, label, id) {
    const wrong = this.wrong[name];
    return h(
      "div",
      { class: "field" },
      h("label", { for: id }, `${label}, ${this.account.data.currency}`),
      h("input", { id, type: "text", inputmode: "decimal", autocomplete: "off", placeholder: money(123456, this.account.data.currency), value: this.typed[name], "aria-invalid": wrong ? "true" : null, "aria-describedby": wrong ? `${id}-wrong` : null, oninput: (event) => { this.typed[name] = event.target.value; this.wrong[name] = ""; this.app.redraw(); } }),
      wrong && h("p", { class: "refusal", id: `${id}-wrong`, role: "alert" }, wrong),
    );
  }
}

/** A whole number, also one that no double holds. */
const whole = (text) => (Number.isSafeInteger(Number(text)) ? Number(text) : BigInt(text));

const last = (order) => (order ? `order ${order.id} at ${priced(order.price, order.currency)}` : "none");

const refused = (problem) => (problem.errors?.length ? problem.errors.map(({ detail }) => detail).join("; ") : problem.message);
