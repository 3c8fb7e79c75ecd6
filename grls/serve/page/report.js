// Lays out the report of an explanation: here, and in the file that `grls explain --output` writes.

import { edges, el, plainName } from "./dom.js";

const PROSE = ["passage", "preferred", "id"]; // columns of words; others hold numbers
const SEARCHES = ["search", "ranking"]; // facts that name a retriever

/** A part of a report: facts, sentences, or a table that is a box of its own where it is wider than the card. */
export function part({ kind, rows, marked: strong }) {
  if (kind === "facts") return el("dl", { class: "data" }, rows.map(([name, value]) => [el("dt", null, name), el("dd", null, SEARCHES.includes(name) ? plainName(value) : value)]));
  const mark = (n) => (strong.includes(n) ? "strong" : null);
  if (kind === "text") return rows.map(([line], n) => el("p", { class: mark(n) }, line));
  const [names, ...lines] = rows;
  const cells = (row, tag) => row.map((text, n) => el(tag, { class: PROSE.includes(names[n]) ? `words ${names[n]}` : null }, text));
  const body = lines.map((row, n) => el("tr", { class: mark(n + 1) }, cells(row, "td")));
  const box = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Table: ${names.join(", ")}` }, el("table", { class: names.includes("passage") ? "ranking" : null }, el("thead", null, el("tr", null, cells(names, "th"))), el("tbody", null, body)));
  edges(box);
  return box;
}
