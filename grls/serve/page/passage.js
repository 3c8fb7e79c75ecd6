// A passage as a card that opens: its text, metadata, score and hop, and what can be asked about it.

import { Problem, addressOf, key, meaning, read, send } from "./api.js";
import { announce, around, el, inCommon, marked, refill, short, shown, signed, several, percent } from "./dom.js";
import { part } from "./report.js";

let cards = 0;

/** The names that led ranked hops to a passage; empty without any. */
const namesOf = (hit) => (hit.links ?? []).map(({ words, passage }) => `“${words}” in ${passage ?? "the question"}`).join(", ");

/**
 * A card.
 *
 * @param hit The passage.
 * @param about `place` (from 1), `retriever`, `question`, `evidence`, `likely`: scores are log-probabilities,
 *   `hop`: null in a ranking, `share`: length of the bar of its score, `beam`: opens the beam, or null.
 */
export function card(hit, about) {
  const name = `card-${(cards += 1)}`;
  const body = el("div", { class: "card-more", id: name, hidden: true });
  const wanted = new Set(inCommon([about.question, ...about.before].join(" "), `${hit.title} ${hit.text}`));
  const prose = el("span", { class: "prose", dir: "auto" });
  const show = (text) => refill(prose, text.trim() ? marked(text, wanted) : el("i", null, "(this passage has no text)"));
  show(around(hit.text, wanted));
  const head = el(
    "button",
    { type: "button", class: "card-head", "aria-expanded": "false", "aria-controls": name },
    el("span", { class: "badge", "aria-hidden": "true" }, about.place),
    el(
      "span",
      { class: "card-text" },
      el("span", { class: "hidden" }, about.hop ? `Hop ${about.hop}: ` : `Rank ${about.place}: `),
      hit.title ? el("span", { class: "card-title" }, marked(hit.title, wanted)) : null,
      prose,
      el("span", { class: "card-line" }, el("code", null, hit.id), score(hit.score, about), namesOf(hit) ? el("span", { dir: "auto" }, `found by ${short(namesOf(hit), 80)}`) : null, el("span", { class: "also" })),
    ),
    el("span", { class: "chevron", "aria-hidden": "true" }),
  );
  const article = el(
    "article",
    { class: "card", data: { id: hit.id }, vars: about.share === null ? null : { "--share": about.share } },
    el("h3", null, head),
    body,
  );
  head.addEventListener("click", () => show(toggle(head, body, () => fill(body, hit, about)) ? hit.text : around(hit.text, wanted)));
  return article;
}

/** In a chain the score is that of a hop, after the passages before; a ranking gives the passage another one. */
function score(value, { likely, hop }) {
  if (value === null) return el("span", { class: "score" }, "no score");
  const where = hop ? " in this hop" : "";
  if (!likely) return el("span", { class: "score" }, `score${where} ${signed(value)}`);
  return el("span", { class: "score", title: "Log-probability, natural logarithm" }, `${percent(value)} · ${signed(value)} nats${where}`);
}

function toggle(head, body, make) {
  const opens = head.getAttribute("aria-expanded") === "false";
  head.setAttribute("aria-expanded", String(opens));
  body.hidden = !opens;
  if (opens && !body.childElementCount) make();
  return opens;
}

function fill(body, hit, about) {
  const where = addressOf(hit.id, about.retriever);
  const data = el("dl", { class: "data" }, el("dt", null, "Id"), el("dd", null, el("code", null, hit.id)));
  const add = (name, ...value) => data.append(el("dt", null, name), el("dd", null, ...value));
  add(about.hop ? "Hop" : "Rank", about.hop ? `${about.hop}${about.evidence.length ? `, after ${several(about.evidence.length, "passage")}` : ", from the question alone"}` : about.place);
  if (namesOf(hit)) add("Found by", namesOf(hit));
  add(about.hop ? "Score in this hop" : "Score", hit.score === null ? "none" : String(hit.score));
  const slot = el("div", { class: "metadata", "aria-live": "polite" }, el("p", { class: "quiet" }, "Metadata …"));
  const said = el("div", { class: "why" });
  const why = el("button", { type: "button", class: "plain" }, "Why is it here?");
  why.addEventListener("click", () => explain(why, said, hit, about));
  const beam = about.beam
    ? el("button", { type: "button", class: "plain", on: { click: about.beam } }, "See the beam")
    : null;
  // A new tab sends no key.
  const link = key.get() ? null : el("a", { href: where, target: "_blank", rel: "noopener" }, "Open as JSON");
  refill(body, data, slot, el("div", { class: "row" }, beam, why, link), said);
  metadata(slot, where);
}

async function metadata(slot, where) {
  try {
    const { metadata: held } = await read(where);
    const names = Object.keys(held ?? {});
    if (!names.length) return refill(slot, el("p", { class: "quiet" }, "No metadata."));
    const list = el("dl", { class: "data" });
    for (const name of names) {
      const value = held[name];
      list.append(el("dt", null, name), el("dd", null, typeof value === "string" ? value : JSON.stringify(value)));
    }
    return refill(slot, list);
  } catch (error) {
    return refill(slot, el("p", { class: "quiet" }, `The metadata cannot be read: ${shown(error.message)}`));
  }
}

async function explain(button, slot, hit, about) {
  button.disabled = true;
  refill(slot, el("p", { class: "quiet" }, "The search runs once more …"));
  try {
    const gold = about.chained ? [...about.evidence, hit.id] : [hit.id];
    const answer = await send("/v1/explain", { query: about.question, gold, retriever: about.retriever });
    const report = answer.passages.find((one) => one.gold === hit.id) ?? answer.passages.at(-1);
    refill(slot, el("h4", null, "Why it is here"), el("div", { class: "report" }, report.parts.map(part)));
    announce("The report is below the passage.");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    refill(slot, el("p", { class: "quiet", role: "alert" }, `${meaning(error.status)}: ${error.message}`));
  } finally {
    button.disabled = false;
  }
}
