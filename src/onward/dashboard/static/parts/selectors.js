/** Writing selectors: a condition for a label, and one more condition beside those that are there. */

const KEYWORDS = new Set(["and", "or", "not", "in", "has"]);

/** Write a word so that a selector takes it literally. */
export function literal(word) {
  const plain = /^[A-Za-z0-9_.:/-]+$/.test(word) && !KEYWORDS.has(word.toLowerCase());
  return plain ? word : `"${word.replaceAll(/["\\]/g, "\\$&")}"`;
}

/** Everybody who has a label. */
export const hasLabel = (name, value) => `${literal(name)}=${literal(value)}`;

/** Everybody with a part of the name, as far as a selector can say that: upper and lower case differ. */
export const nameHas = (part) => `name=*${part.replaceAll(/[^A-Za-z0-9_.:-]/g, "\\$&")}*`;

/** One condition more; it is not said twice, and what is said already is kept together. */
export function narrowed(selector, condition) {
  const said = selector.trim();
  if (!said || said === "all" || said === condition) return condition;
  const outer = outside(said);
  // In `a or b and c`, c says nothing about a.
  if (/\bor\b|,/i.test(outer)) return `(${said}) and ${condition}`;
  return outer.split(" and ").includes(condition) ? said : `${said} and ${condition}`;
}

/** What of a selector stands in no parentheses. */
function outside(selector) {
  let depth = 0;
  const parts = selector.match(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|[()]|[^"'\\()]+/g) ?? [];
  const outer = parts.filter((part) => {
    if (part === "(") depth += 1;
    if (part === ")") depth -= 1;
    return depth === 0;
  });
  return outer.join("");
}
