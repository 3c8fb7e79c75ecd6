// Draws the chain of evidence as it grows: the question, its passages, DONE. Chains that a later hop gave up
// stay as thin branches. The list of passages below the drawing says the same in words.

import { draw, inCommon, refill, short, shown, words } from "./dom.js";

const STEP = 168;
const LEFT = 34;
const MIDDLE = 46;
const BRANCH = 46;
/** The widest label. */
const LABEL = 170;

/** Characters of the label of an edge. */
const EDGE = 24;

/** A line from one point to another that leaves and arrives level. */
const curve = (x1, y1, x2, y2) => `M${x1} ${y1} C${x1 + STEP * 0.45} ${y1} ${x2 - STEP * 0.45} ${y2} ${x2} ${y2}`;

/** A line to a row below: it leaves to the right of the label that stands below its first point. */
const drop = (x1, y1, x2, y2) => `M${x1} ${y1} H${x1 + STEP - 52} C${x2 - 24} ${y1} ${x2 - 36} ${y2} ${x2} ${y2}`;

/** A text in at most two lines below a point. */
function label(text, x, y, width = 22) {
  const lines = [];
  for (const word of short(text, 2 * width).split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && `${last} ${word}`.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else if (lines.length < 2) lines.push(short(word, width));
    else {
      lines[1] = `${short(lines[1].replace(/…$/, ""), width - 1)}…`;
      break;
    }
  }
  return draw("text", { x, y, class: "trail-label" }, lines.map((line, n) => draw("tspan", { x, dy: n ? 15 : 0 }, line)));
}

/**
 * Draw a trail.
 *
 * @param box Where it is drawn.
 * @param trail `question`; `chain`: ids of the best chain; `past`: chains that were best before; `hits`: id ->
 *   passage; `links`: the names that led to each passage of the chain; `running`; `done`; `choose(place)`:
 *   called with the place of a passage that is clicked.
 */
export function drawTrail(box, { question, chain, past, hits, links, running, done, choose }) {
  const columns = Math.max(chain.length, ...past.map((one) => one.length), 0);
  const ends = running || done ? 1 : 0;
  const lost = branches(chain, past);
  const rows = Math.max(0, ...lost.map((one) => one.row));
  const at = (n) => LEFT + STEP * n + 12;
  const nodes = LEFT * 2 + STEP * Math.max(1, Math.max(columns, chain.length + ends)) + 40;
  const width = Math.max(nodes, at(columns) + LABEL);
  const height = MIDDLE + 62 + rows * BRANCH;
  const picture = draw("svg", {
    class: "trail", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": spoken(question, chain, hits, links, done),
  });
  for (const one of lost) {
    const y = MIDDLE + BRANCH * one.row + 26;
    const from = one.parentRow ? MIDDLE + BRANCH * one.parentRow + 26 : MIDDLE;
    picture.append(
      draw("path", { class: "trail-lost", d: drop(at(one.hop), from, at(one.hop + 1), y) }),
      draw("circle", { class: "trail-lost-node", cx: at(one.hop + 1), cy: y, r: 4 }),
      draw("text", { class: "trail-lost-label", x: at(one.hop + 1) - 4, y: y + 18 }, short(hits.get(one.id)?.text || one.id, 22)),
    );
  }
  chain.forEach((id, n) => picture.append(draw("path", { class: "trail-thread", pathLength: 1, d: curve(at(n), MIDDLE, at(n + 1), MIDDLE) })));
  chain.forEach((id, n) => {
    const led = naming(chain, n, links) || link(question, chain, n, hits);
    if (led) picture.append(draw("text", { class: "trail-link", x: at(n) + STEP / 2, y: MIDDLE - 18 }, short(led, EDGE), draw("title", null, led)));
  });
  if (ends) picture.append(draw("path", { class: running ? "trail-next" : "trail-thread", pathLength: 1, d: curve(at(chain.length), MIDDLE, at(chain.length + 1), MIDDLE) }));
  picture.append(node(at(0), "?", "question", () => choose(-1)), label(question, at(0) - 14, MIDDLE + 34));
  chain.forEach((id, n) => {
    const hit = hits.get(id);
    picture.append(node(at(n + 1), n + 1, "passage", () => choose(n)), label(hit?.title || hit?.text || id, at(n + 1) - 14, MIDDLE + 34));
  });
  if (running) picture.append(draw("circle", { class: "trail-waiting", cx: at(chain.length + 1), cy: MIDDLE, r: 9 }));
  if (done) picture.append(flag(at(chain.length + 1)));
  refill(box, picture);
  box.scrollTo({ left: running ? box.scrollWidth : 0 }); // the end while it grows, then from the question on
}

function node(x, text, kind, act) {
  return draw(
    "g",
    { class: `trail-node trail-${kind}`, on: { click: act } },
    draw("circle", { cx: x, cy: MIDDLE, r: 14 }),
    draw("text", { x, y: MIDDLE + 5 }, text),
  );
}

function flag(x) {
  return draw(
    "g",
    { class: "trail-done" },
    draw("rect", { x: x - 26, y: MIDDLE - 14, width: 58, height: 28, rx: 14 }),
    draw("text", { x: x + 3, y: MIDDLE + 5 }, "DONE"),
  );
}

/** The name that led to a passage: `names …`, after the node that holds it if that is not the one before. */
function naming(chain, place, links, question = "?") {
  const before = place ? chain[place - 1] : null;
  const led = links[place] ?? [];
  const best = led.find((one) => one.passage === before) ?? led[0];
  if (!best) return "";
  const holder = best.passage === before ? "" : `${best.passage === null ? question : chain.indexOf(best.passage) + 1} `;
  return `${holder}names ${best.words}`;
}

/** Words that lead from what is before to a passage. */
function link(question, chain, place, hits) {
  const text = (id) => `${hits.get(id)?.title ?? ""} ${hits.get(id)?.text ?? ""}`;
  const before = place ? text(chain[place - 1]) : question;
  const held = chain.map((id) => words(text(id)));
  const common = inCommon(before, text(chain[place]));
  const rare = common.filter((word) => held.filter((one) => one.has(word)).length <= Math.max(2, chain.length / 2));
  return (rare.length ? rare : common).sort((a, b) => b.length - a.length).slice(0, 2).join(" · ");
}

/** The passages that only earlier chains held, each with its hop and a row below the thread. */
function branches(chain, past) {
  const found = new Map();
  for (const one of past) {
    one.forEach((id, hop) => {
      const name = JSON.stringify(one.slice(0, hop + 1));
      const same = one.slice(0, hop + 1).every((other, n) => chain[n] === other);
      if (same || found.has(name)) return;
      const parent = found.get(JSON.stringify(one.slice(0, hop)));
      const taken = [...found.values()].filter((other) => other.hop === hop).length;
      found.set(name, { id, hop, row: Math.max(parent?.row ?? 1, taken + 1), parentRow: parent?.row ?? 0 });
    });
  }
  return [...found.values()];
}

function spoken(question, chain, hits, links, done) {
  const led = (n) => (links[n]?.length ? `${naming(chain, n, links, "the question")}. ` : "");
  const steps = chain.map((id, n) => `${led(n)}${n + 1}: ${short(hits.get(id)?.title || hits.get(id)?.text || id, 80)}`);
  return shown(`The chain of evidence. Question: ${question}. ${steps.join(". ")}${done ? ". DONE" : ""}`);
}
