/** The book of an item: how much is wanted and offered at which price, as a picture and as numbers. */

import { count, many } from "../../format.js";
import { h } from "../../view.js";
import { money, priced } from "./money.js";

const WIDTH = 720;
const HEIGHT = 180;

/** What stands at a price or at a better one. */
function sums(levels) {
  let all = 0;
  return levels.map(({ price, orders }) => ({ price, orders, all: (all += orders) }));
}

/** The picture: those who buy at the left, those who sell at the right, and nothing between the best. */
export function depth({ bids, asks, currency }) {
  const wanted = sums(bids);
  const offered = sums(asks);
  const prices = [...wanted, ...offered].map(({ price }) => price);
  const low = Math.min(...prices);
  const high = Math.max(...prices);
  const edge = Math.max(1, (high - low) * 0.04);
  const top = Math.max(...[...wanted, ...offered].map(({ all }) => all));
  const x = (price) => ((price - low + edge) / (high - low + 2 * edge)) * WIDTH;
  const y = (all) => HEIGHT - (all / top) * (HEIGHT - 12);
  const told = `Depth of the book: ${many(wanted.at(-1)?.all ?? 0, "order")} to buy, ${many(offered.at(-1)?.all ?? 0, "order")} to sell`;
  return h(
    "figure",
    { class: "depth" },
    h(
      "svg",
      { class: "depth-picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": told },
      h("line", { class: "chart-line", x1: 0, x2: WIDTH, y1: y(top / 2), y2: y(top / 2) }),
      steps(wanted, { x, y, end: 0, tone: "good", told: "to buy at", currency }),
      steps(offered, { x, y, end: WIDTH, tone: "bad", told: "to sell at", currency }),
      h("line", { class: "chart-axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
    ),
    h("figcaption", { class: "depth-prices" }, h("span", null, money(low, currency)), h("span", null, `${count(top)} orders at most`), h("span", null, money(high, currency))),
  );
}

/** The steps of one side, each with what it says to whoever points there. */
function steps(levels, { x, y, end, tone, told, currency }) {
  if (!levels.length) return null;
  const corners = levels.flatMap(({ price, all }, i) => [`${x(price)},${y(i ? levels[i - 1].all : 0)}`, `${x(price)},${y(all)}`]);
  const outline = [...corners, `${end},${y(levels.at(-1).all)}`, `${end},${HEIGHT}`, `${x(levels[0].price)},${HEIGHT}`].join(" ");
  return h(
    "g",
    { class: `tone-${tone}` },
    h("polygon", { class: "depth-side", points: outline }),
    levels.map(({ price, orders, all }, i) => {
      const next = levels[i + 1] ? x(levels[i + 1].price) : end;
      const [left, right] = [Math.min(x(price), next), Math.max(x(price), next)];
      return h("rect", { key: price, class: "chart-target", x: left, y: 0, width: Math.max(1, right - left), height: HEIGHT }, h("title", null, `${many(orders, "order")} ${told} ${priced(price, currency)}; ${count(all)} up to there`));
    }),
  );
}

/** The same as numbers, the best first; choosing a price puts it into the order. */
export function levels(book, { onchoose }) {
  const most = Math.max(1, ...[...book.bids, ...book.asks].map(({ orders }) => orders));
  return h(
    "div",
    { class: "levels" },
    side("Wanted", book.bids, { most, tone: "good", currency: book.currency, onchoose: (price) => onchoose("sell", price), deed: "Sell at" }),
    side("Offered", book.asks, { most, tone: "bad", currency: book.currency, onchoose: (price) => onchoose("buy", price), deed: "Buy at" }),
  );
}

function side(label, found, { most, tone, currency, onchoose, deed }) {
  return h(
    "table",
    { class: `level-table tone-${tone}` },
    h("caption", null, label),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, `Price (${currency})`), h("th", { scope: "col", class: "right" }, "Orders"))),
    h(
      "tbody",
      null,
      found.map(({ price, orders }) =>
        h(
          "tr",
          { key: price },
          h("td", null, h("button", { type: "button", class: "level-price", "aria-label": `${deed} ${priced(price, currency)}`, onclick: () => onchoose(price) }, money(price, currency))),
          h("td", { class: "right level-orders" }, h("span", { class: "level-bar", "aria-hidden": "true", style: { width: `${(orders / most) * 100}%` } }), h("span", null, count(orders))),
        ),
      ),
      !found.length && h("tr", null, h("td", { colspan: 2, class: "soft" }, "nobody yet")),
    ),
  );
}
