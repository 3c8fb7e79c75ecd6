// Asks the language model of the server, and shows its answer with quotes that lead to their sources.

import { Problem, addressOf, cancelled, meaning, send } from "./api.js";
import { announce, el, refill, reveal, several } from "./dom.js";

let running = null;

/** Stop the language model. Returns whether it was at work. */
export function stopAnswer() {
  const was = running !== null;
  running?.abort();
  running = null;
  return was;
}

/**
 * Ask, and show the answer in `box`.
 *
 * @param request `query`, `retriever`, `method`, and what a search has: `where`, `hops`.
 */
export async function showAnswer(box, request) {
  stopAnswer();
  const mine = (running = new AbortController());
  const { where, hops, ...plain } = request;
  const body = request.method === "riches" ? plain : { ...plain, ...(where ? { where } : {}), ...(hops ? { hops } : {}) };
  box.hidden = false;
  refill(box, el("p", { class: "quiet" }, `The language model reads and writes (${request.method}). Esc stops it.`));
  reveal(box);
  try {
    const answer = await send("/v1/answer", body, mine.signal);
    refill(box, written(answer), answer.quotes.length ? quotes(answer) : null);
    announce(answer.answer ? `Answer: ${answer.answer}` : "No answer was written.");
  } catch (error) {
    if (!cancelled(error) && !(error instanceof Problem)) throw error;
    refill(box, el("p", { role: "alert", class: "problem" }, cancelled(error) ? "The answer was stopped." : `${meaning(error.status)}: ${error.message}`));
  } finally {
    if (running === mine) running = null;
  }
}

function written(answer) {
  const pieces = answer.pieces.map((one) => {
    const place = one.quote === null ? null : el("sup", null, el("a", { href: `#quote-${one.quote}`, "aria-label": `Quote ${one.quote + 1}`, on: { click: (event) => jump(event, one.quote) } }, one.quote + 1));
    return el("span", { class: one.kind, dir: "auto" }, one.text, place, " ");
  });
  const text = pieces.length ? pieces : answer.answer || "No answer was written.";
  const cut = answer.ended ? null : el("p", { class: "quiet" }, "The length limit cut it.");
  return [el("h2", null, "Answer", el("span", { class: "quiet" }, ` ${answer.method}, with ${answer.retriever}`)), el("p", { class: "prose written", dir: "auto" }, text), cut];
}

/** To a quote, without a change of the address: that holds the state of the page. */
function jump(event, place) {
  event.preventDefault();
  const quote = document.getElementById(`quote-${place}`);
  quote.focus({ preventScroll: true });
  reveal(quote, "center");
}

function quotes(answer) {
  const items = answer.quotes.map((quote, n) => {
    const sources = quote.sources.map((one) =>
      el("details", null, el("summary", null, one.title || one.id), el("p", { class: "prose", dir: "auto" }, one.text), el("a", { href: addressOf(one.id, answer.retriever), target: "_blank", rel: "noopener" }, el("code", null, one.id))),
    );
    const further = quote.further ? el("p", { class: "quiet" }, `${several(quote.further, "further passage")} hold it.`) : null;
    const open = quote.closed ? null : el("p", { class: "quiet" }, "The length limit cut this quote, so it names no passage.");
    return el("li", { id: `quote-${n}`, tabindex: "-1" }, el("span", { class: "badge", "aria-hidden": "true" }, n + 1), el("div", null, el("q", { class: "prose", dir: "auto" }, quote.text), sources, further, open));
  });
  return el("section", { class: "quotes", "aria-label": "Quotes and their sources" }, el("h3", null, "Quotes and their sources"), el("ol", null, items));
}
