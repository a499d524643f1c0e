/** Money: kept in minor units, as whole numbers, and shown and typed as people write it. */

const AMOUNT_MAX = 10 ** 12;

/** How many digits stand behind the point of a currency; one that nobody knows has two. */
export function digits(currency) {
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;
  } catch {
    return 2;
  }
}

/** `1234567` EUR as `12,345.67`: by its digits, so that no cent is lost on the way. */
export function money(minor, currency) {
  const behind = digits(currency);
  const negative = minor < 0;
  const written = String(minor).replace("-", "").padStart(behind + 1, "0");
  const whole = written.slice(0, written.length - behind).replaceAll(/\B(?=(\d{3})+$)/g, ",");
  return `${negative ? "−" : ""}${whole}${behind ? `.${written.slice(-behind)}` : ""}`;
}

/** The same with the currency's name. */
export const priced = (minor, currency) => `${money(minor, currency)} ${currency}`;

/** Return what was typed in minor units; what is no amount is refused with what it is. */
export function typedAmount(text, currency) {
  const behind = digits(currency);
  // A comma stands between thousands and nowhere else: elsewhere it is a point, and 12,50 is not 1,250.
  const found = /^(\d{1,15}|\d{1,3}(?:,\d{3})+)(?:\.(\d*))?$/.exec(text.trim());
  if (!found) throw new Error(`Write an amount such as ${money(123456, currency)}.`);
  const [, whole, fraction = ""] = found;
  if (fraction.replace(/0+$/, "").length > behind) throw new Error(behind ? `${currency} has ${behind} digits behind the point.` : `${currency} has no digits behind a point.`);
  const minor = Number(whole.replaceAll(",", "") + fraction.slice(0, behind).padEnd(behind, "0"));
  if (minor === 0) throw new Error("An amount is more than nothing.");
  if (minor > AMOUNT_MAX) throw new Error(`At most ${money(AMOUNT_MAX, currency)} at once.`);
  return minor;
}

/** What is typed as one would type it again, for a field. */
export const forField = (minor, currency) => money(minor, currency).replaceAll(",", "");
