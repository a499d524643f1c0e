/**
 * What is on the page, as a description: `h` describes, `mount` makes it so, and says it again
 * whenever something has changed. Only what differs is touched, so nothing flickers, the focus stays
 * where it is, and what somebody has typed is not lost.
 *
 * Text is only ever text: there is no way from here to make markup out of what a host has said.
 */

const SVG = "http://www.w3.org/2000/svg";
/** What has to be set as a property, because the attribute is only its first value. */
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "indeterminate", "open"]);

/**
 * Describe an element. Children are text, elements, lists of them, or nothing (`null`, `false`).
 *
 * `props`: attributes by their names; `class`; `style` an object of CSS properties; `key` to be
 * found again among its siblings; `on…` what to do; `ref(element)` is called once the element is
 * there, and may return what to do when it goes.
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: flat(children) };
}

/** Show what `view()` describes inside `root`; returns how to say that something has changed. */
export function mount(root, view) {
  let shown = [];
  let asked = false;
  let gone = false;
  const draw = () => {
    asked = false;
    if (gone) return;
    const next = flat([view()]);
    patchChildren(root, shown, next, root.namespaceURI === SVG);
    shown = next;
  };
  const redraw = () => {
    if (asked) return;
    asked = true;
    // A page that nobody sees gets no frames, but still has to be right when it is looked at.
    if (document.hidden) setTimeout(draw, 200);
    else requestAnimationFrame(draw);
  };
  redraw.now = draw;
  redraw.end = () => {
    patchChildren(root, shown, [], false);
    shown = [];
    gone = true;
  };
  draw();
  return redraw;
}

function flat(children, into = []) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) flat(child, into);
    else if (typeof child === "object") into.push(child);
    else into.push({ tag: null, text: String(child), children: [] });
  }
  return into;
}

/** What tells elements without a key apart: an element is not made into one of another kind. */
const kind = ({ tag, props }) => (tag === null ? "" : `${tag}.${String(props.class ?? "").split(" ")[0]}${props.ref ? "!" : ""}`);

function patchChildren(parent, old, next, svg) {
  const keyed = new Map();
  for (const node of old) if (node.key !== undefined) keyed.set(node.key, node);
  const used = new Set();
  const unkeyed = old.filter((node) => node.key === undefined);
  let at = 0;
  const matched = next.map((node) => {
    if (node.key !== undefined) {
      const found = keyed.get(node.key);
      return found && found.tag === node.tag ? found : null;
    }
    // The next one of its kind: what has come or gone before it does not make it another.
    const place = unkeyed.findIndex((each, i) => i >= at && kind(each) === kind(node));
    if (place < 0) return null;
    at = place + 1;
    return unkeyed[place];
  });
  for (const node of matched) if (node) used.add(node);
  for (const node of old) if (!used.has(node)) remove(parent, node);
  // From the end, so that what comes after is already in its place.
  let following = null;
  for (let i = next.length - 1; i >= 0; i -= 1) {
    const node = next[i];
    if (matched[i]) patch(matched[i], node, svg);
    else node.element = create(node, svg);
    if (node.element.nextSibling !== following || node.element.parentNode !== parent) {
      parent.insertBefore(node.element, following);
    }
    following = node.element;
  }
  for (let i = 0; i < next.length; i += 1) if (!matched[i]) appeared(next[i]);
}

function create(node, svg) {
  if (node.tag === null) return document.createTextNode(node.text);
  const inSvg = svg || node.tag === "svg";
  const element = inSvg
    ? document.createElementNS(SVG, node.tag)
    : document.createElement(node.tag);
  node.element = element;
  // Options first: the value of a list is one of them.
  for (const child of node.children) {
    child.element = create(child, inSvg && node.tag !== "foreignObject");
    element.appendChild(child.element);
  }
  for (const [name, value] of Object.entries(node.props)) assign(element, name, undefined, value);
  return element;
}

function patch(old, next, svg) {
  next.element = old.element;
  next.leave = old.leave;
  if (next.tag === null) {
    if (old.text !== next.text) old.element.data = next.text;
    return;
  }
  const inSvg = (svg || next.tag === "svg") && next.tag !== "foreignObject";
  patchChildren(next.element, old.children, next.children, inSvg);
  for (const name of Object.keys(old.props)) {
    if (!(name in next.props)) assign(next.element, name, old.props[name], undefined);
  }
  for (const [name, value] of Object.entries(next.props)) {
    assign(next.element, name, old.props[name], value);
  }
}

function appeared(node) {
  for (const child of node.children) appeared(child);
  if (node.props?.ref) node.leave = node.props.ref(node.element);
}

function remove(parent, node) {
  vanished(node);
  parent.removeChild(node.element);
}

function vanished(node) {
  for (const child of node.children) vanished(child);
  if (typeof node.leave === "function") node.leave();
}

function assign(element, name, before, value) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) return listen(element, name.slice(2), before, value);
  if (name === "style") return styled(element, before ?? {}, value ?? {});
  if (PROPERTIES.has(name)) {
    // Compared with what is there, because people type.
    const wanted = value ?? (name === "value" ? "" : false);
    if (element[name] !== wanted) element[name] = wanted;
    return;
  }
  if (before === value) return;
  if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

function listen(element, event, before, value) {
  if (before === value) return;
  if (before) element.removeEventListener(event, before);
  if (value) element.addEventListener(event, value);
}

function styled(element, before, value) {
  // Through the object model: a policy that forbids inline styles allows this.
  for (const name of Object.keys(before)) {
    if (!(name in value)) element.style.removeProperty(name);
  }
  for (const [name, wanted] of Object.entries(value)) {
    if (before[name] !== wanted) element.style.setProperty(name, String(wanted));
  }
}
