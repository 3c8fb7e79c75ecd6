// Shows a beam search, token by token: what was considered, with probabilities, and what the constraint allowed.

import { Problem, meaning, send } from "./api.js";
import { announce, count, edges, el, moves, percent, refill, reveal, several, short, shown, signed } from "./dom.js";
import { arranged, COLUMN, drawTree, FATES, legend, readable } from "./tree.js";

/** The text of a prefix. */
const joined = (tokens) => tokens.map((one) => shown(one.token)).join("").replace(/[▁Ġ]/g, " ").trim();

/** The panel of one search. */
export class BeamPanel {
  constructor(box, changed) {
    Object.assign(this, { box, changed, step: 0, trace: null, timer: null });
    box.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** Search once more, and show the beam. `place`: the hop, from 0; `step`: the token to begin with. */
  async open(answer, place, step = 0) {
    this.stop();
    this.opener = document.activeElement;
    this.answer = answer;
    this.place = place;
    this.box.hidden = false;
    refill(this.box, el("p", { class: "quiet" }, "The search runs once more, and is watched …"));
    reveal(this.box, "start");
    try {
      this.trace = await send("/v1/trace", this.body());
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      refill(this.box, this.head(), el("p", { role: "alert", class: "problem" }, `${meaning(error.status)}: ${error.message}`));
      return;
    }
    this.step = Math.min(step, Math.max(0, this.trace.steps.length - 1));
    this.build();
    this.go(this.step);
    this.box.querySelector("h2").focus({ preventScroll: true });
    reveal(this.box, "start");
  }

  body() {
    const { hopping, chain, ask } = this.answer;
    const evidence = hopping ? chain.slice(0, this.place) : [];
    return { ...this.answer.body(), evidence, ...(hopping ? {} : { k: ask.k }) };
  }

  close() {
    this.stop();
    const inside = this.box.contains(document.activeElement);
    this.box.hidden = true;
    this.trace = null;
    if (inside && this.opener?.isConnected) this.opener.focus();
    this.changed();
  }

  head() {
    const { answer, place } = this;
    const what = answer.hopping ? `hop ${place + 1}` : "the ranking";
    return el(
      "header",
      null,
      el("h2", { tabindex: "-1" }, `The beam of ${what}`, el("span", { class: "quiet" }, ` ${answer.info.retriever}`)),
      el("button", { type: "button", class: "plain close", on: { click: () => this.close() } }, "Close"),
    );
  }

  build() {
    const { trace } = this;
    const facts = [
      `${several(trace.passages, "passage")} may be found`,
      `${several(trace.beams, "prefix").replace("prefixs", "prefixes")} kept at each step`,
      `${count(trace.vocabulary)} tokens in the vocabulary`,
      trace.mode === "renormalized" ? "scores: probabilities among the allowed tokens" : "scores: probabilities in the vocabulary",
    ];
    if (trace.done_bias) facts.push(`bias on DONE after the search: ${signed(trace.done_bias)} nats`);
    if (trace.rescored) facts.push(`${trace.rescored} passages are rescored afterwards`);
    if (trace.cut) facts.push("only the first steps are shown");
    const list = el("ul", { class: "facts" }, facts.map((one) => el("li", null, one)));
    if (!trace.steps.length) {
      const only = trace.results[0];
      refill(this.box, this.head(), list, el("p", null, `Only one passage may be found, so no token had to be decoded${only ? `: ${only.id}` : ""}.`));
      return;
    }
    this.tree = el("div", { class: "tree-box", tabindex: "0", role: "group", "aria-label": "Drawing of the beam" });
    this.fade = edges(this.tree);
    this.slider = el("input", { type: "range", min: 1, max: trace.steps.length, value: 1, "aria-label": "Step" });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value) - 1));
    const move = (by, sign, name) => el("button", { type: "button", class: "step", "aria-label": name, on: { click: () => this.go(this.step + by) } }, sign);
    this.player = el("button", { type: "button", class: "step play", on: { click: () => this.play() } }, "Play");
    this.where = el("output", { class: "where" });
    this.details = el("div", { class: "step-details" });
    refill(
      this.box, this.head(), list,
      el("div", { class: "stepper", role: "group", "aria-label": "Walk token by token" }, move(-1, "←", "Step before"), this.slider, move(1, "→", "Next step"), this.player, this.where),
      this.tree, legend("It leads to the passage that was taken."), this.details, results(trace),
    );
    this.layout = arranged(trace);
    this.chosen = wayTo(trace, this.answer.hopping ? (this.answer.chain[this.place] ?? "DONE") : trace.results[0]?.id);
  }

  /** Show a step. */
  go(step) {
    const { trace } = this;
    if (!trace?.steps.length) return;
    this.step = Math.max(0, Math.min(trace.steps.length - 1, step));
    this.slider.value = this.step + 1;
    this.slider.setAttribute("aria-valuetext", `Step ${this.step + 1} of ${trace.steps.length}`);
    refill(this.where, `token ${this.step + 1} of ${trace.steps.length}`);
    refill(this.tree, drawTree(trace, this.layout, this.chosen, this.step, (to) => this.go(to)));
    const right = (this.step + 1) * COLUMN + 60;
    this.fade();
    this.tree.scrollTo({ left: Math.max(0, right - this.tree.clientWidth * 0.7), behavior: moves() ? "smooth" : "auto" });
    refill(this.details, constraint(trace, this.step), candidates(trace, this.step));
    const best = trace.steps[this.step].tokens[0];
    if (best) announce(`Token ${this.step + 1}. Best: ${joined(path(trace, this.step, best))}, ${percent(best.constrained)} under the constraint.`);
    this.changed();
  }

  play() {
    if (this.timer) return this.stop();
    if (this.step + 1 >= this.trace.steps.length) this.go(0);
    this.player.textContent = "Pause";
    this.timer = setInterval(() => {
      if (this.step + 1 >= this.trace.steps.length) this.stop();
      else this.go(this.step + 1);
    }, 900);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.player) this.player.textContent = "Play";
  }

  pressed(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by && event.target !== this.slider && !event.altKey && !event.ctrlKey && !event.metaKey) {
      this.stop();
      this.go(this.step + by);
      event.preventDefault();
    }
    if (event.key === "Escape") {
      this.close();
      event.stopPropagation();
    }
  }
}

/** The candidates from the first token to this one. */
function path(trace, step, token) {
  const parent = trace.steps[step].beams[token.beam]?.parent;
  if (!step || parent === null || parent === undefined) return [token];
  return [...path(trace, step - 1, trace.steps[step - 1].tokens[parent]), token];
}

/** The text of the prefix that a beam of a step continues. */
function prefixOf(trace, step, beam) {
  const parent = trace.steps[step].beams[beam]?.parent;
  if (!step || parent === null || parent === undefined) return "";
  return joined(path(trace, step - 1, trace.steps[step - 1].tokens[parent]));
}

/** The candidates that lead to a passage. */
function wayTo(trace, id) {
  for (const [n, step] of trace.steps.entries()) {
    const last = step.tokens.find((one) => one.fate === "finished" && one.found.includes(id));
    if (last) return new Set(path(trace, n, last));
  }
  return new Set();
}

/** What the constraint allows after each prefix. */
function constraint(trace, step) {
  const rows = trace.steps[step].beams.map((beam, n) => {
    const text = prefixOf(trace, step, n);
    const mass = beam.mass ?? 0;
    return el(
      "li",
      null,
      el("span", { class: "prefix", dir: "auto" }, text ? `“${text}”` : "the beginning"),
      el("span", { class: "allowed" }, `${count(beam.allowed)} of ${count(trace.vocabulary)} tokens allowed`),
      el("span", { class: "meter", vars: { "--share": mass.toFixed(4) }, role: "img", "aria-label": `${percent(Math.log(mass || 1e-9))} of the probability of the model` }),
      el("span", { class: "mass" }, `the model gives them ${percent(Math.log(mass || 1e-9))}`),
    );
  });
  return el("section", { class: "constraint", "aria-label": "What the constraint allows" }, el("h3", null, "What the constraint allows"), el("ul", null, rows));
}

/** The table of the candidates of a step. */
function candidates(trace, step) {
  const { tokens, candidates: every } = trace.steps[step];
  const priors = tokens.some((one) => one.prior !== null);
  const names = ["Token", "After", "Model", "Constrained", ...(priors ? ["Priors"] : []), "Score", "Passages left", "Outcome"];
  const hints = { Model: "Probability in the whole vocabulary", Constrained: "Probability among the allowed tokens", Priors: "What the priors add, in nats", Score: "Score of the prefix, in nats" };
  const body = tokens.map((one) =>
    el(
      "tr",
      { class: one.fate },
      el("th", { scope: "row" }, el("code", null, readable(one.token))),
      el("td", { class: "after", dir: "auto" }, short(prefixOf(trace, step, one.beam), 38) || "–"),
      bar(one.full),
      bar(one.constrained),
      priors ? el("td", { class: "number" }, signed(one.prior)) : null,
      el("td", { class: "number" }, signed(one.score)),
      el("td", { class: "number" }, count(one.passages)),
      el("td", null, outcome(one)),
    ),
  );
  const left = every - tokens.length;
  const table = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of candidates" }, el("table", null, el("thead", null, el("tr", null, names.map((name) => el("th", { scope: "col", title: hints[name] }, name)))), el("tbody", null, body)));
  edges(table);
  return el(
    "section",
    { class: "candidates", "aria-label": "Candidates" },
    el("h3", null, `Candidates of token ${step + 1}`),
    table,
    left > 0 ? el("p", { class: "quiet" }, `${several(left, "candidate")} with lower scores ${left === 1 ? "is" : "are"} not listed.`) : null,
  );
}

const bar = (log) => el("td", { class: "bar", vars: { "--share": Math.exp(log ?? -99).toFixed(5) } }, percent(log));

function outcome(token) {
  const [name, what] = FATES[token.fate];
  const found = token.found.length ? el("span", { class: "found" }, el("code", null, short(token.found.join(", "), 40))) : null;
  const early = token.unique && token.fate === "finished" ? el("span", { class: "early", title: "Only one passage begins so: the rest is forced, and not decoded." }, "unique: stopped early") : null;
  return [el("span", { class: `fate ${token.fate}`, title: what }, name), early, found];
}

/** What the search returns. */
function results(trace) {
  const likely = !trace.steps.some((step) => step.tokens.some((one) => one.prior !== null)); // else scores are sums
  const items = trace.results.map((one) => el("li", null, el("code", null, one.id), el("span", { class: "prose", dir: "auto" }, short([one.title, one.id === "DONE" ? "the chain ends" : one.text].filter(Boolean).join(": "), 120)), el("span", { class: "score" }, likely ? `${percent(one.score)} · ` : null, signed(one.score))));
  return el("section", { class: "results", "aria-label": "Results of the search" }, el("h3", null, "What the search returns"), items.length ? el("ol", null, items) : el("p", { class: "quiet" }, "No passage."));
}
