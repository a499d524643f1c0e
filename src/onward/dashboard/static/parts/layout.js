/**
 * Where the parts of a lifecycle stand: computed from its states and moves, so that no diagram has to
 * be drawn by hand, and none can be wrong about the law.
 *
 * Live states stand on a line, in the order of the longest way to them. Ends stand at the right, below
 * each other. A move to the next state goes straight, one that skips states or leads back goes over the
 * line, and ends that are reached from the same states share their way, as stations share a track.
 */

export const BOX = Object.freeze({ wide: 128, tall: 34 });
const GAP = 76; // between two live states: room for the name of an event
const LAST_GAP = 124; // before the ends: room for the track and for the name of an event
const ROW = 46;
const LEVEL = 26; // between two ways over the line
const EDGE = 12; // around everything
const TRACK = 22; // from the last live state to where the tracks meet
const TRACK_BELOW = 14; // of a track that passes below the line

/**
 * Lay out a lifecycle of `GET /lifecycles`.
 *
 * Returns `{width, height, boxes, ways, labels}`: `boxes` of states, `ways` with their corners, one
 * for each pair of states, and `labels` with the events of one or several ways.
 */
export function layout(lifecycle) {
  const moves = lifecycle.moves.filter(({ from }) => from.length);
  const live = inOrder(lifecycle, moves);
  const groups = ends(lifecycle, moves, live);
  const over = levels(skipping(moves, live));
  const top = EDGE + over.height * LEVEL + (over.height ? 10 : 0) + BOX.tall / 2;
  const boxes = new Map();
  live.forEach((name, i) => boxes.set(name, box(EDGE + i * (BOX.wide + GAP), top)));
  const lastX = EDGE + live.length * (BOX.wide + GAP) - GAP + LAST_GAP;
  groups.flatMap(({ states }) => states).forEach((name, row) => boxes.set(name, box(lastX, top + row * ROW)));
  const drawn = [...straight(moves, live, boxes), ...arcs(over, boxes, top), ...tracks(groups, live, boxes, top)];
  const bottom = Math.max(...[...boxes.values()].map(({ y }) => y), ...drawn.flatMap(({ points }) => points.map(([, y]) => y - BOX.tall / 2)));
  return {
    width: lastX + BOX.wide + EDGE,
    height: bottom + BOX.tall / 2 + EDGE,
    boxes,
    ways: drawn,
    labels: labelled(drawn),
  };
}

const box = (x, y) => ({ x, y, left: x, right: x + BOX.wide, top: y - BOX.tall / 2, bottom: y + BOX.tall / 2 });

/** The live states by the longest way from the first one; a move that leads back is not a way. */
function inOrder({ initial, states }, moves) {
  const live = states.filter(({ terminal }) => !terminal);
  const names = new Set(live.map(({ name }) => name));
  const ways = new Map(live.map(({ name }) => [name, successors(name, moves, names)]));
  const depth = new Map();
  const walk = (name, deep, behind) => {
    if (behind.has(name) || (depth.get(name) ?? -1) >= deep) return;
    depth.set(name, deep);
    for (const next of ways.get(name)) walk(next, deep + 1, new Set([...behind, name]));
  };
  walk(initial, 0, new Set());
  const rank = new Map(live.map(({ name, rank: r }) => [name, r]));
  const deep = (name) => depth.get(name) ?? Infinity; // nothing leads there: it stands last
  return [...names].sort((a, b) => deep(a) - deep(b) || rank.get(a) - rank.get(b));
}

const successors = (name, moves, among) =>
  [...new Set(moves.filter(({ from, to }) => from.includes(name) && among.has(to)).map(({ to }) => to))];

/** The ends, together where they are reached from the same states; what is reached from the last one first. */
function ends({ states }, moves, live) {
  const groups = new Map();
  for (const { name, rank, terminal } of states) {
    if (!terminal) continue;
    const into = moves.filter(({ to }) => to === name);
    const sources = live.filter((each) => into.some(({ from }) => from.includes(each)));
    const key = sources.join(" ");
    if (!groups.has(key)) groups.set(key, { sources, rank, states: [], moves: [] });
    groups.get(key).states.push(name);
    groups.get(key).moves.push(...into);
  }
  const last = live.at(-1);
  const place = ({ sources, rank }) => (!sources.length ? 1e6 : sources.length === 1 && sources[0] === last ? -1 : rank);
  return [...groups.values()].sort((a, b) => place(a) - place(b));
}

/** The moves between live states by pairs: `{from, to, events}`. */
function pairs(moves, live) {
  const found = new Map();
  for (const { event, from, to } of moves) {
    if (!live.includes(to)) continue;
    for (const each of from) {
      const key = `${each} ${to}`;
      if (!found.has(key)) found.set(key, { from: each, to, events: [] });
      found.get(key).events.push(event);
    }
  }
  return [...found.values()];
}

const apart = (live, { from, to }) => live.indexOf(to) - live.indexOf(from);

const straight = (moves, live, boxes) =>
  pairs(moves, live).filter((way) => apart(live, way) === 1).map((way) => {
    const [a, b] = [boxes.get(way.from), boxes.get(way.to)];
    return { ...way, points: [[a.right, a.y], [b.left, b.y]], label: [(a.right + b.left) / 2, a.y - 7, "middle"] };
  });

const skipping = (moves, live) =>
  pairs(moves, live).filter((way) => apart(live, way) !== 1).map((way) => {
    const places = [live.indexOf(way.from), live.indexOf(way.to)].sort((a, b) => a - b);
    return { ...way, first: places[0], last: places[1] };
  });

/** Give each way over the line a level: short ones below long ones, and none through another. */
function levels(ways) {
  const taken = [];
  const placed = [...ways].sort((a, b) => a.last - a.first - (b.last - b.first) || a.first - b.first).map((way) => {
    let level = 0;
    while (taken.some((other) => other.level === level && other.first < way.last && way.first < other.last)) level += 1;
    taken.push({ ...way, level });
    return taken.at(-1);
  });
  return { ways: placed, height: Math.max(0, ...placed.map(({ level }) => level + 1)) };
}

function arcs({ ways }, boxes, top) {
  const port = ports(ways, boxes);
  return ways.map(({ from, to, events, level }) => {
    const y = top - BOX.tall / 2 - 10 - (level + 0.4) * LEVEL;
    const [x1, x2] = [port(from, to, from), port(from, to, to)];
    const edge = top - BOX.tall / 2;
    return { from, to, events, points: [[x1, edge], [x1, y], [x2, y], [x2, edge]], label: [between(x1, x2, boxes), y - 5, "middle"] };
  });
}

/** Between two boxes, as near to the middle of a way as can be: no way leaves or meets a box there. */
function between(x1, x2, boxes) {
  const middle = (x1 + x2) / 2;
  const gaps = [...boxes.values()].map(({ right }) => right + GAP / 2).filter((x) => x > Math.min(x1, x2) && x < Math.max(x1, x2));
  return gaps.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0] ?? middle;
}

/** Where a way leaves or meets the top of a box: beside the others that do, in the order of where they lead. */
function ports(ways, boxes) {
  const at = new Map();
  for (const { from, to } of ways) {
    for (const [own, other] of [[from, to], [to, from]]) {
      if (!at.has(own)) at.set(own, []);
      at.get(own).push({ key: `${from} ${to}`, other: boxes.get(other).x });
    }
  }
  for (const [own, list] of at) {
    const { x } = boxes.get(own);
    // Those that lead to the left stand at the left; the longer one goes around the shorter.
    const side = (each) => (each.other < x ? 0 : 1);
    list.sort((a, b) => side(a) - side(b) || b.other - a.other);
  }
  return (from, to, own) => {
    const list = at.get(own);
    const place = list.findIndex(({ key }) => key === `${from} ${to}`);
    return boxes.get(own).x + (BOX.wide * (place + 1)) / (list.length + 1);
  };
}

/** The ways to the ends: down from each state, along a track, and out to every end of the group. */
function tracks(groups, live, boxes, top) {
  const last = live.at(-1);
  const meet = boxes.get(last).right + TRACK;
  const below = groups.filter(({ sources }) => sources.length).map((group) => ({ ...group, ...track(group, boxes, top, last) }));
  return below.flatMap((group) =>
    group.moves.flatMap(({ event, from, to }) =>
      from.filter((source) => group.sources.includes(source)).map((source) => {
        const end = boxes.get(to);
        const label = [meet + 9, end.y - 6, "start"];
        if (group.direct) return { from: source, to, events: [event], points: [[boxes.get(source).right, top], [meet, top], [meet, end.y], [end.left, end.y]], label };
        const x = drop(source, group, below, boxes);
        return { from: source, to, events: [event], points: [[x, boxes.get(source).bottom], [x, group.y], [meet, group.y], [meet, end.y], [end.left, end.y]], label };
      }),
    ),
  );
}

function track({ sources, states }, boxes, top, last) {
  const direct = sources.length === 1 && sources[0] === last;
  const first = boxes.get(states[0]).y;
  return { direct, y: direct ? top : Math.max(first, top + BOX.tall / 2 + TRACK_BELOW) };
}

/** Where a way leaves the bottom of a box: what goes deepest at the left, so that ways do not cross. */
function drop(source, group, groups, boxes) {
  const down = groups.filter(({ sources, direct }) => !direct && sources.includes(source)).sort((a, b) => b.y - a.y);
  return boxes.get(source).x + (BOX.wide * (down.indexOf(group) + 1)) / (down.length + 1);
}

/** The names of events, once at each place, with the ways that they are of. */
function labelled(ways) {
  const found = new Map();
  for (const way of ways) {
    const [x, y, anchor] = way.label;
    const key = `${x} ${y}`;
    if (!found.has(key)) found.set(key, { x, y, anchor, events: new Set(), ways: [] });
    for (const event of way.events) found.get(key).events.add(event);
    found.get(key).ways.push(way);
  }
  return [...found.values()].map((label) => ({ ...label, events: [...label.events] }));
}
