// Shows the answer of one retriever: hops as they arrive, or a ranking, or an error in plain words.

import { Problem, addressOf, cancelled, hops, meaning, read, send } from "./api.js";
import { announce, count, edges, el, percent, plainName, refill, reveal, several, short } from "./dom.js";
import { card } from "./passage.js";
import { drawTrail } from "./trail.js";

const seconds = (from) => `${((performance.now() - from) / 1000).toFixed(2)} s`;

/** The meaning of scores, in words; empty where the retriever goes otherwise than its folder says. */
function scale({ scores, hops: own }, steps) {
  if (steps === "ranked") return "score: the probability that a chain of hops holds the passage";
  if (own.steps === "ranked") return "";
  if (/^renormalized/.test(scores)) return "scores are log-probabilities among passages";
  return /^full/.test(scores) ? "scores are log-probabilities in the vocabulary" : `scores: ${plainName(scores) || "unknown"}`;
}

/** The answer of one retriever. */
export class Answer {
  /**
   * @param letter "A" or "B".
   * @param info The retriever, as /v1/retrievers describes it.
   * @param ask `question`, `k`, `where`, `hops`: what is asked; `steps`: how it retrieves then.
   * @param acts `openKey()`, `again()`, `beam(answer, place)`, `changed()`.
   */
  constructor(letter, info, ask, acts) {
    Object.assign(this, { letter, info, ask, acts });
    this.chain = [];
    this.past = [];
    this.links = [];
    this.hits = new Map();
    this.ranking = [];
    this.done = false;
    this.running = this.walked = false;
    this.said = "";
    this.cards = new Map();
    this.made();
  }

  made() {
    this.timing = el("p", { class: "timing" });
    this.trail = el("div", { class: "trail-box", tabindex: "0", role: "group", "aria-label": "Drawing of the chain" });
    this.fade = edges(this.trail);
    this.list = el("ol", { class: "cards" });
    this.end = el("div", { class: "end" });
    this.note = el("p", { class: "quiet" });
    this.way = el("section", { class: "way", hidden: true, "aria-label": "How it was found" }, el("h3", null, "How it was found"));
    const name = `answer-${this.letter}`;
    this.box = el(
      "section",
      { class: "answer", "aria-labelledby": name, data: { letter: this.letter } },
      el(
        "header",
        null,
        el("h2", { id: name }, el("span", { class: "letter" }, this.letter), this.info.retriever),
        el("p", { class: "quiet" }, [plainName(this.info.name), several(this.info.passages, "passage"), scale(this.info, this.ask.steps)].filter(Boolean).join(" · ")),
        this.timing,
      ),
      this.ranked ? null : this.trail,
      this.list,
      this.end,
      this.ranked ? this.way : null,
    );
    if (this.ranked) this.way.append(this.trail, this.note);
  }

  /** Whether the retriever goes hop by hop here. */
  get hopping() {
    return this.ask.steps !== "single";
  }

  /** Whether the answer is a ranking by hops; the likeliest chain shows how it was found. */
  get ranked() {
    return this.ask.steps === "ranked";
  }

  /** Whether the answer is a chain. */
  get chained() {
    return this.hopping && !this.ranked;
  }

  /** Whether its scores are log-probabilities. */
  get likely() {
    return /^(renormalized|full)\b/.test(this.info.scores) && !this.ranked;
  }

  /** Ids of the passages that are shown, in order. */
  get ids() {
    return this.chained ? this.chain : this.ranking.map((hit) => hit.id);
  }

  /** The hop whose beam the passage at a place of the list opens, from 0. */
  hopOf(place) {
    return this.chained ? place : Math.max(0, this.chain.indexOf(this.ids[place]));
  }

  /** What the requests of this answer have in common. */
  body() {
    const { question, where, hops: way } = this.ask;
    return { query: question, retriever: this.info.retriever, ...(where ? { where } : {}), ...(way ? { hops: way } : {}) };
  }

  /** The request that is made, for those who want it as code. */
  request() {
    if (this.chained) return { address: "/v1/stream", body: this.body() };
    return { address: "/v1/search", body: { ...this.body(), k: this.ask.k } };
  }

  /** Ask, and show what comes. */
  async run(signal) {
    this.from = performance.now();
    this.running = true;
    this.trail.hidden = !this.hopping;
    this.wait();
    if (this.hopping) this.draw();
    try {
      await (this.ranked ? this.both(signal) : this.chained ? this.walk(signal) : this.search(signal));
    } catch (error) {
      this.running = false;
      this.failed(error);
    } finally {
      this.running = false;
      this.list.querySelector(".waiting")?.remove();
      if (this.hopping && !this.error) this.draw();
    }
  }

  /** The ranking, and beside it the hops that lead to it. */
  async both(signal) {
    const ended = await Promise.allSettled([this.search(signal), this.walk(signal)]);
    const failed = ended.find((one) => one.status === "rejected");
    if (failed) throw failed.reason;
  }

  async walk(signal) {
    let first = null;
    for await (const hop of hops(this.body(), signal)) {
      first ??= seconds(this.from);
      await this.take(hop, signal);
      if (this.ranked) {
        this.walked = hop.last;
        this.draw();
        if (hop.last) this.explainWay(hop.number);
        continue;
      }
      const hit = hop.hit && this.hits.get(hop.hit.id);
      if (hit) this.say(`${this.info.retriever}, hop ${hop.number}: ${short(`${hit.title} ${hit.text}`, 160)}`);
      refill(this.timing, this.took(hop.last && hop.done, first));
      if (hop.last) this.running = false;
      this.show();
      this.acts.changed();
      if (hop.last) this.finish(hop);
    }
  }

  /** What has come so far, and when. Hops are not counted: the best chain may be shorter than they are many. */
  took(ended, first) {
    const what = this.chain.length ? several(this.chain.length, "passage") : "no passage";
    const begun = this.chain.length > 1 ? `, the first after ${first}` : "";
    return `${what}${ended ? " and DONE" : ""} in ${seconds(this.from)}${begun}`;
  }

  /** Say something to those who listen, and keep it. */
  say(text) {
    this.said = text;
    announce(text);
  }

  async take(hop, signal) {
    const before = this.chain;
    if (before.length && !before.every((id, n) => hop.chain[n] === id)) this.past.push(before);
    this.chain = hop.chain;
    this.score = hop.score;
    this.done = hop.done;
    if (hop.hit) this.hits.set(hop.hit.id, hop.hit);
    this.scores = hop.scores ?? [];
    this.links = hop.links ?? [];
    // A later hop may prefer another chain, whose first passages were not sent.
    // Fused rankings have no chain: the passage that names their first one stands before it.
    const names = this.links[0] ?? [];
    const holder = names.some((one) => one.passage === null) ? null : names[0]?.passage;
    if (holder) [this.chain, this.links, this.scores] = [[holder, ...this.chain], [[], ...this.links], [null, ...this.scores]];
    await Promise.all(this.chain.filter((id) => !this.hits.has(id)).map((id) => this.fetched(id, signal)));
  }

  async fetched(id, signal) {
    try {
      const { title, text } = await read(addressOf(id, this.info.retriever), signal);
      this.hits.set(id, { id, title, text, score: null });
    } catch (error) {
      if (cancelled(error)) throw error;
      this.hits.set(id, { id, title: "", text: "(its text cannot be read)", score: null });
    }
  }

  async search(signal) {
    const answer = await send("/v1/search", this.request().body, signal);
    this.ranking = answer.results[0].hits;
    refill(this.timing, `${several(this.ranking.length, "passage")} in ${seconds(this.from)}`);
    this.list.querySelector(".waiting")?.remove();
    const scores = this.ranking.map((hit) => hit.score ?? 0);
    const [top, last] = [Math.max(...scores), Math.min(...scores, 0)];
    this.ranking.forEach((hit, n) => {
      const share = this.likely ? Math.exp(scores[n] - top) : (scores[n] - last) / (top - last || 1);
      this.put(n, hit, Math.max(0.02, share).toFixed(3));
    });
    this.acts.changed();
    const best = this.ranking[0];
    if (best) this.say(`${this.info.retriever}: ${several(this.ranking.length, "passage")}. First: ${short(`${best.title} ${best.text}`, 160)}`);
    else this.nothing();
  }

  /** The cards of the chain so far, and the drawing. */
  show() {
    this.chain.forEach((id, n) => this.put(n, { ...this.hits.get(id), score: this.scores[n] ?? null }, null));
    while (this.list.querySelectorAll(":scope > li:not(.waiting)").length > this.chain.length) {
      this.list.querySelectorAll(":scope > li:not(.waiting)")[this.chain.length].remove();
    }
    this.wait();
    this.draw();
  }

  draw() {
    this.trail.hidden = this.way.hidden = !this.running && !this.chain.length;
    drawTrail(this.trail, {
      question: this.ask.question, chain: this.chain, past: this.past, hits: this.hits, links: this.links,
      running: this.running && !this.walked, done: this.done && !this.running, choose: (place) => this.focusCard(place),
    });
    this.fade();
  }

  /** Put a card at a place, unless it stands there. */
  put(place, hit, share) {
    const items = this.list.querySelectorAll(":scope > li:not(.waiting)");
    const old = items[place];
    if (old?.dataset.id === hit.id && old.dataset.score === String(hit.score)) return;
    const before = this.chained ? this.chain.slice(0, place) : [];
    const about = {
      place: place + 1, hop: this.chained ? place + 1 : null, retriever: this.info.retriever, share,
      question: this.ask.question, evidence: before, chained: this.chained && !this.ask.hops, likely: this.likely,
      before: before.map((id) => `${this.hits.get(id)?.title ?? ""} ${this.hits.get(id)?.text ?? ""}`),
      beam: this.info.no_beam ? null : () => this.acts.beam(this, this.hopOf(place)),
    };
    const item = el("li", { data: { id: hit.id, score: String(hit.score) }, vars: { "--n": this.chained ? 0 : place } }, card(hit, about));
    if (old) old.replaceWith(item);
    else this.list.insertBefore(item, this.list.querySelector(".waiting"));
  }

  /** The place of the passage that comes next. */
  wait() {
    this.list.querySelector(".waiting")?.remove();
    if (!this.running) return;
    const what = this.chained ? `Hop ${this.chain.length + 1} is being found` : "The passages are being found";
    this.list.append(el("li", { class: "waiting" }, el("span", { class: "hidden" }, `${what} …`), el("i"), el("i"), el("i")));
  }

  focusCard(place) {
    const row = this.ranked ? this.ids.indexOf(this.chain[place]) : place;
    const head = place < 0 ? document.getElementById("question") : this.list.querySelectorAll(".card-head")[row];
    head?.focus({ preventScroll: true });
    if (head) reveal(head, "center");
  }

  /** In plain words: what ranked hops are, and that the chain is not the answer. */
  explainWay(number) {
    if (this.info.kind === "fusion" && !this.ask.hops) {
      return refill(this.note, "A fusion ranks what several retrievers find. The drawing shows what led to its first passage.");
    }
    const made = `Ranked hops go on to their number, or until an onward model sees little left to find: ${several(number, "hop")} here.`;
    refill(this.note, `${made} The ranking above decides, not the number of passages in the drawing, which is the likeliest chain. A passage stands high if many likely chains hold it.`);
  }

  finish(hop) {
    const beam = this.info.no_beam || !this.done ? null : el("button", { type: "button", class: "plain", on: { click: () => this.acts.beam(this, this.chain.length) } }, "See why it ended");
    if (!this.chain.length) return this.nothing();
    const length = several(this.chain.length, "passage");
    const likely = this.likely && this.score !== null ? ` The whole chain has the probability ${percent(this.score)}.` : "";
    if (hop.done) {
      this.say(`${this.info.retriever}: DONE after ${length}.`);
      return refill(this.end, el("p", { class: "done" }, el("strong", null, "DONE"), ` The model ended the chain after ${length}.${likely}`), beam);
    }
    this.say(`${this.info.retriever}: ${length}.`);
    const why = this.ask.steps === "dynamic" ? ", without DONE: the largest number of hops is reached, or nothing more may be found." : ": the number of hops is reached, or nothing more may be found.";
    return refill(this.end, el("p", { class: "stopped" }, `${length} in the chain${why}${likely}`));
  }

  nothing() {
    const hint = this.ask.where ? " The filter may leave too little: try without it." : " Try other words.";
    this.say(`${this.info.retriever}: nothing was found.`);
    refill(this.end, el("div", { class: "empty" }, el("strong", null, "Nothing was found."), hint));
  }

  failed(error) {
    if (cancelled(error)) {
      const kept = this.ids.length ? ` ${several(this.ids.length, "passage")} had arrived.` : "";
      refill(this.end, el("p", { class: "stopped" }, `Cancelled.${kept} The server has stopped this search.`));
      this.say(`${this.info.retriever}: cancelled.`);
      return;
    }
    if (!(error instanceof Problem)) throw error;
    this.error = error;
    refill(this.end, problemCard(error, this.acts));
    this.said = `${this.info.retriever}: ${meaning(error.status)}.`;
    if (!this.chain.length) this.trail.hidden = this.way.hidden = true;
  }
}

/** An error, in plain words, with what can be done. */
export function problemCard(error, acts) {
  const again = el("button", { type: "button", on: { click: acts.again } }, "Ask again");
  const keyed = error.status === 401 ? el("button", { type: "button", on: { click: acts.openKey } }, "Enter a key") : null;
  const after = error.after ? el("p", null, `It may be asked again in ${several(error.after, "second")}.`) : null;
  const fields = error.errors.map((one) => el("li", null, el("code", null, one.field), `: ${one.problem}`));
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("h3", null, `${meaning(error.status)}.`),
    el("p", null, error.message),
    fields.length ? el("ul", null, fields) : null,
    after,
    el("div", { class: "row" }, keyed, again),
  );
}

/** Mark the passages that two answers have in common, with their ranks; says how many there are. */
export function agree(one, other) {
  let common = 0;
  for (const [here, there] of [[one, other], [other, one]]) {
    here.list.querySelectorAll(":scope > li:not(.waiting)").forEach((item) => {
      const place = there.ids.indexOf(item.dataset.id);
      item.classList.toggle("agrees", place >= 0);
      const also = item.querySelector(".also");
      if (also) also.textContent = place < 0 ? "" : `also #${place + 1} in ${there.letter}`;
      if (here === one && place >= 0) common += 1;
    });
  }
  const shortest = Math.min(one.ids.length, other.ids.length);
  if (!shortest) return "";
  if (!common) return "The two have no passage in common.";
  const same = one.ids[0] === other.ids[0] ? " They agree on the first one." : "";
  return `${several(common, "passage")} in common, of ${count(one.ids.length)} and ${count(other.ids.length)}.${same}`;
}
