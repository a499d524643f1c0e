/**
 * Where somebody is: the part of the address after `#`, with all that was chosen there, so that a
 * link shows the same to somebody else and the way back leads back.
 */

/** Return where we are: `{path: ["jobs", "17"], query: URLSearchParams}`. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: new URLSearchParams(query),
  };
}

/** What somebody has written may be no code at all. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Write the address of a place; what is empty in the query is left out. */
export function href(path, query = {}) {
  const chosen = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "" && each !== false) chosen.append(name, each);
    }
  }
  const written = [].concat(path).map(encodeURIComponent).join("/");
  return `#/${written}${chosen.size ? `?${chosen}` : ""}`;
}

/** Go somewhere else. */
export function go(address) {
  location.hash = address;
}

/** Say what was chosen here, without a step that the way back would have to undo. */
export function choose(query) {
  const { path } = here();
  history.replaceState(null, "", href(path, query));
  dispatchEvent(new CustomEvent("chosen"));
}

/** Be told of every move. */
export function whenMoved(handler) {
  addEventListener("hashchange", handler);
}
