// The page of `grls judge`: a question, the passages that retrievers find, and marks of gold in the order of need.

import { Problem, meaning, read, send } from "./api.js";
import { announce, byId, el, refill, reveal, several } from "./dom.js";

let state = null;
let gold = [];
let busy = false;

/** Do what may fail: its error is shown, and one thing is done at a time. */
async function attempt(work) {
  if (busy) return;
  busy = true;
  document.body.setAttribute("aria-busy", "true");
  refill(byId("problem"));
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    refill(byId("problem"), el("div", { class: "problem", role: "alert" }, el("h3", null, meaning(error.status)), el("p", null, error.message)));
  } finally {
    busy = false;
    document.body.removeAttribute("aria-busy");
  }
}

const act = (name, body = {}) =>
  attempt(async () => {
    const { question, judged } = state;
    try {
      show(await send("/judge", { act: name, question, judged, ...body }));
    } catch (error) {
      if (error.status === 409) show(await read("/judge"));
      throw error;
    }
  });

function show(next) {
  state = next;
  gold = [];
  const { question, hits, judged, left, told, output } = state;
  byId("state").textContent = `${several(judged, "question")} judged${left > 1 ? `, ${left} to judge` : ""}`;
  byId("where").textContent = judged ? `Each answer is written to ${output} at once.` : "";
  byId("undo").disabled = !judged;
  byId("told").hidden = !told;
  byId("told").textContent = told;
  byId("asked").hidden = question === null;
  byId("form").hidden = question !== null;
  byId("question").value = "";
  if (question === null) return byId("question").focus();
  byId("text").textContent = question;
  refill(byId("hits"), hits.length ? hits.map(card) : el("li", { class: "empty" }, "Nothing was found."));
  for (const prose of byId("hits").querySelectorAll(".prose")) { // a text that is shown whole needs no button
    prose.nextSibling.hidden = prose.scrollHeight <= prose.clientHeight + 2;
  }
  mark();
  scrollTo(0, 0);
  return byId("text").focus({ preventScroll: true });
}

function card(hit, place) {
  const prose = el("p", { class: "prose", dir: "auto" }, hit.text);
  const more = el("button", { type: "button", class: "plain", "aria-expanded": "false" }, "Whole text");
  more.addEventListener("click", () => {
    const opens = more.getAttribute("aria-expanded") === "false";
    more.setAttribute("aria-expanded", String(opens));
    prose.classList.toggle("open", opens);
    refill(more, opens ? "Less" : "Whole text");
  });
  const title = el("span", { class: "card-title", dir: "auto" }, hit.title || hit.id);
  const line = el("span", { class: "card-line" }, hit.place ? hit.place : el("code", null, hit.id));
  const head = el("button", { type: "button", class: "card-head", "aria-pressed": "false", on: { click: () => toggle(place) } },
    el("span", { class: "badge", "aria-hidden": "true" }, place + 1), el("span", { class: "card-text" }, title, line), el("span", { class: "gold" }));
  return el("li", { class: "card" }, head, el("div", { class: "card-body" }, prose, more));
}

function toggle(place) {
  const { id, title } = state.hits[place];
  gold = gold.includes(id) ? gold.filter((one) => one !== id) : [...gold, id];
  announce(`${title || id}: ${gold.includes(id) ? `gold ${gold.indexOf(id) + 1}` : "no gold"}`);
  mark();
}

/** Show the marks, with their numbers. */
function mark() {
  byId("hits").querySelectorAll(".card").forEach((one, place) => {
    const number = gold.indexOf(state.hits[place].id) + 1;
    one.classList.toggle("is-gold", number > 0);
    one.querySelector(".card-head").setAttribute("aria-pressed", String(number > 0));
    one.querySelector(".gold").textContent = number ? `gold ${number}` : "";
  });
  byId("save").disabled = !gold.length;
}

const save = () => gold.length && act("judge", { gold });
const actions = { Enter: save, n: () => act("judge", { gold: [] }), s: () => act("skip"), u: () => act("undo") };

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = byId("question").value.trim();
  if (question) act("ask", { question });
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("form").requestSubmit();
});
byId("save").addEventListener("click", save);
byId("none").addEventListener("click", actions.n);
byId("skip").addEventListener("click", actions.s);
byId("undo").addEventListener("click", actions.u);
byId("table-open").addEventListener("click", () => attempt(async () => {
  const [heads, ...rows] = await read("/judge/table");
  const cells = (row, tag) => el("tr", null, row.map((text, place) => el(place ? tag : "th", { scope: place ? null : "row" }, text)));
  refill(byId("rows"), heads ? el("table", null, el("thead", null, cells(heads, "th")), el("tbody", null, rows.map((row) => cells(row, "td")))) : "No question has gold yet.");
  byId("counted").textContent = `${several(state.gold, "question")} with gold; ${several(state.judged - state.gold, "question")} without, in no figure.`;
  byId("table").showModal();
}));
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const elsewhere = event.ctrlKey || event.metaKey || event.altKey || byId("table").open || target.id === "question";
  if (elsewhere || byId("asked").hidden) return;
  if (key === "Enter" && target.closest("button:not(.card-head), a")) return;
  const place = /^[1-9]$/.test(key) ? Number(key) - 1 : -1;
  if (place >= 0 && place < state.hits.length) {
    toggle(place);
    reveal(byId("hits").children[place]);
  } else if (!actions[key]) return;
  else actions[key]();
  event.preventDefault();
});

attempt(async () => show(await read("/judge")));
