/** What one has and did: orders, deals, the ledger and items, each a list that is read as one goes on. */

import { words } from "../../format.js";
import { footing, Listing, table } from "../../parts/listing.js";
import { status } from "../../parts/status.js";
import { tabs } from "../../parts/tabs.js";
import { when } from "../../parts/time.js";
import { href } from "../../router.js";
import { h } from "../../view.js";
import { money, priced } from "./money.js";

const ORDERS = { buy: "purchase-orders", sell: "sell-orders" };

/** Where the orders of a side are. */
export const ordersOf = (side) => `/api/v1/trading/${ORDERS[side]}`;

export const TABS = { buy: "Orders to buy", sell: "Orders to sell", deals: "Deals", ledger: "Ledger", items: "Items" };
const PATHS = { buy: ordersOf("buy"), sell: ordersOf("sell"), deals: "/api/v1/trading/deals", ledger: "/api/v1/billing/operations", items: "/api/v1/trading/items" };
const EMPTY = {
  buy: "You have no orders to buy. Choose a price of the book, or write one, and place it.",
  sell: "You have no orders to sell. What is among your items can be sold.",
  deals: "No order of yours has met another yet.",
  ledger: "Nothing has happened to your accounts. Deposit something to begin.",
  items: "You have no items. Buy one, or ask an admin to bring some in.",
};
const NAMES = { buy: "orders", sell: "orders", deals: "deals", ledger: "operations", items: "items" };

/** What an operation does to what is available, and to what is set aside. */
const SIGNS = { deposit: "+", issue: "+", release: "+", withdraw: "−", hold: "−" };

export class Lists {
  constructor(app, tab, { withdraw, turned }) {
    this.app = app;
    this.tab = tab in TABS ? tab : "buy";
    this.turned = turned;
    this.columns = columns(withdraw);
    this.scroll = {};
    this.lists = {};
    this.reload();
  }

  get list() {
    return (this.lists[this.tab] ??= new Listing(PATHS[this.tab], {}, this.app.redraw));
  }

  reload() {
    return this.list.reload();
  }

  turn(tab) {
    this.tab = tab;
    this.turned();
    this.reload();
  }

  view() {
    const { list, tab } = this;
    return h(
      "section",
      { class: "card card-flush", "aria-label": "What is yours" },
      tabs({ label: "What is yours", among: Object.entries(TABS), current: tab, onturn: (name) => this.turn(name) }),
      h(
        "div",
        { role: "tabpanel", id: "tab-panel", "aria-labelledby": `tab-${tab}` },
        table({
          state: (this.scroll[tab] ??= { top: 0 }),
          label: TABS[tab],
          items: list.items,
          key: (item) => `${tab}-${item.id ?? item.operation_id ?? item.item_id}`,
          onend: () => list.more(),
          redraw: this.app.redraw,
          empty: list.loading || list.problem ? null : EMPTY[tab],
          columns: this.columns[tab],
          rowHeight: 42,
          rows: 10,
        }),
        footing(list, NAMES[tab]),
      ),
    );
  }
}

const item = (id) => h("a", { href: href(["trading"], { item: id }) }, `item ${id}`);
const at = { name: "at", label: "When", class: "cell-when", cell: (each) => when(each.at ?? each.created_at) };

const order = (withdraw) => [
  { name: "id", label: "Order", class: "cell-id wide", cell: (each) => each.id },
  { name: "item", label: "Item", class: "cell", cell: (each) => item(each.item_id) },
  { name: "price", label: "Limit", class: "cell-money", cell: (each) => priced(each.price, each.currency) },
  { name: "commission", label: "Commission", class: "cell-money wide", cell: (each) => h("span", { title: each.status === "FILLED" ? "What it was" : "At most" }, money(each.commission, each.currency)) },
  { name: "status", label: "Status", class: "cell-status", cell: (each) => status(each.status, { note: each.deal_id ? `deal ${each.deal_id}` : null }) },
  { ...at, class: "cell-when wide" },
  { name: "deed", label: h("span", { class: "visually-hidden" }, "Withdraw"), class: "cell-withdraw", cell: (each) => each.status === "OPEN" && h("button", { type: "button", class: "button button-small", "aria-label": `Withdraw order ${each.id}`, onclick: () => withdraw(each) }, "Withdraw") },
];

const columns = (withdraw) => ({
  buy: order(withdraw),
  sell: order(withdraw),
  deals: [
    { name: "id", label: "Deal", class: "cell-id wide", cell: (deal) => deal.id },
    { name: "side", label: "What", class: "cell", cell: (deal) => [deal.side === "buy" ? "bought " : "sold ", item(deal.item_id)] },
    { name: "price", label: "Price", class: "cell-money", cell: (deal) => priced(deal.price, deal.currency) },
    { name: "commission", label: "Commission", class: "cell-money wide", cell: (deal) => money(deal.commission, deal.currency) },
    { name: "order", label: "Order", class: "cell-number wide", cell: (deal) => deal.order_id },
    at,
  ],
  ledger: [
    { name: "id", label: "Operation", class: "cell-id wide", cell: (each) => each.operation_id },
    { name: "kind", label: "What", class: "cell", cell: (each) => [words(each.kind), each.order_id && h("span", { class: "faint" }, ` for order ${each.order_id}`)] },
    { name: "amount", label: "Amount", class: "cell-money", cell: (each) => h("strong", null, `${SIGNS[each.kind] ?? ""}${each.currency ? priced(each.amount, each.currency) : `${each.amount} of item ${each.item_id}`}`) },
    { name: "available", label: "Available after", class: "cell-money wide", cell: (each) => after(each, each.account.available) },
    { name: "held", label: "Set aside after", class: "cell-money wide", cell: (each) => after(each, each.account.held) },
    { name: "version", label: "Version", class: "cell-number wide", cell: (each) => each.account.version },
    at,
  ],
  items: [
    { name: "item", label: "Item", class: "cell", cell: (each) => item(each.item_id) },
    { name: "available", label: "May be sold", class: "cell-number", cell: (each) => each.available },
    { name: "held", label: "Set aside", class: "cell-number", cell: (each) => each.held },
  ],
});

const after = (each, amount) => (each.currency ? money(amount, each.currency) : amount);
