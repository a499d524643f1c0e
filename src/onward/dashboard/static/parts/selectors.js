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
  if (!said || said === "all") return condition;
  if (said === condition || said.split(" and ").includes(condition)) return said;
  return /\bor\b|,/i.test(said) ? `(${said}) and ${condition}` : `${said} and ${condition}`;
}
