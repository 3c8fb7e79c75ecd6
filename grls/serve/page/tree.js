// Draws the prefixes of a beam search as a tree: here, and in the file that `grls explain --output` writes.

import { draw, el, percent, several, short, shown } from "./dom.js";

export const COLUMN = 148;
const ROW = 40;
const TOP = 46;
const DROPPED = 3; // candidates outside of the beam that are drawn at each step
export const FATES = {
  kept: ["kept", "It is within the beam, and goes on."],
  finished: ["passage", "It is a whole passage."],
  pruned: ["dropped", "Others within the beam score higher."],
  beaten: ["beaten", "As many passages as asked for score higher already."],
};

/** A token as people read it: a space is visible. */
export const readable = (token) => shown(token).replace(/^[▁Ġ]/, "␣").replaceAll("▁", "␣") || "␣";

/** The candidates of each step that are drawn, with their rows. */
export function arranged(trace) {
  return trace.steps.map((step) => {
    const within = step.tokens.filter((one) => one.fate !== "pruned");
    const outside = step.tokens.filter((one) => one.fate === "pruned").filter((one, n) => n < DROPPED || one.gold);
    return new Map([...within, ...outside].map((token, row) => [token, row]));
  });
}

/** The drawing. `chosen`: the candidates that are filled; `current`: the step that is looked at; `go` takes a step that is clicked. */
export function drawTree(trace, layout, chosen, current, go) {
  const rows = Math.max(...layout.map((one) => one.size));
  const width = COLUMN * (trace.steps.length + 1);
  const height = TOP + rows * ROW + 12;
  const x = (step) => 30 + COLUMN * step;
  const y = (row) => TOP + row * ROW;
  const tree = draw("svg", { class: "tree", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `The beam up to token ${current + 1}; the table below has the same candidates.` });
  tree.append(draw("rect", { class: "tree-now", x: x(current) + 22, y: 2, width: COLUMN - 8, height: height - 4, rx: 10 }));
  const lines = draw("g", { class: "tree-lines" });
  const nodes = draw("g", null);
  tree.append(lines, draw("circle", { class: "tree-root", cx: 24, cy: y(0) + 14, r: 7 }), nodes);
  trace.steps.forEach((step, n) => {
    const state = n > current ? "later" : n < current ? "before" : "now";
    tree.append(
      draw("g", { class: `tree-head ${state}`, on: { click: () => go(n) } },
        draw("text", { x: x(n) + 30, y: 18 }, `token ${n + 1}`),
        draw("text", { x: x(n) + 30, y: 33, class: "small" }, `${several(step.candidates, "candidate")}`)),
    );
    for (const [token, row] of layout[n]) {
      const parent = step.beams[token.beam]?.parent ?? null;
      const from = n && parent !== null ? layout[n - 1].get(trace.steps[n - 1].tokens[parent]) : 0;
      if (from === undefined) continue;
      const x1 = n ? x(n - 1) + 30 + boxWidth(trace.steps[n - 1].tokens[parent] ?? token) : 31;
      const [y1, x2, y2] = [y(from) + 14, x(n) + 30, y(row) + 14];
      const wide = (1 + 5 * Math.exp(token.constrained ?? -9)).toFixed(2);
      lines.append(draw("path", { class: `${token.fate} ${state}${chosen.has(token) ? " chosen" : ""}`, d: `M${x1} ${y1} C${x1 + 26} ${y1} ${x2 - 26} ${y2} ${x2} ${y2}`, "stroke-width": wide }));
      nodes.append(nodeOf(token, x2, y(row), `${state}${chosen.has(token) ? " chosen" : ""}`));
    }
  });
  return tree;
}

const boxWidth = (token) => Math.min(104, 26 + 8.2 * short(readable(token.token), 9).length);

function nodeOf(token, x, y, state) {
  const width = boxWidth(token);
  const text = short(readable(token.token), 9);
  return draw(
    "g",
    { class: `tree-node ${token.fate} ${state}` },
    draw("title", null, `${readable(token.token)}: ${percent(token.constrained)} under the constraint${token.passages ? `, ${several(token.passages, "passage")} left` : ""}. ${FATES[token.fate][1]}`),
    draw("rect", { x, y, width, height: 28, rx: 7 }),
    draw("rect", { class: "fill", x: x + 3, y: y + 23, width: Math.max(1, (width - 6) * Math.exp(token.constrained ?? -9)), height: 3, rx: 1.5 }),
    draw("text", { x: x + width / 2, y: y + 17 }, text),
    token.fate === "finished" ? draw("text", { class: "tree-flag", x: x + width + 5, y: y + 18 }, "◆") : null,
  );
}

/** What the boxes mean; `filled`: those that are chosen. */
export const legend = (filled) =>
  el("ul", { class: "legend", "aria-label": "Legend" }, el("li", { class: "chosen" }, el("b", null, "filled"), ` ${filled}`), Object.entries(FATES).map(([fate, [name, what]]) => el("li", { class: fate }, el("b", null, name), ` ${what}`)));
