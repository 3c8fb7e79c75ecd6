// The page: the form, the state in the address, and what the keys do.

import { Problem, key, read } from "./api.js";
import { showAnswer, stopAnswer } from "./answer.js";
import { BeamPanel } from "./beam.js";
import { openCode, wireCode } from "./code.js";
import { announce, byId, el, plainName, refill, several } from "./dom.js";
import { Answer, agree, problemCard } from "./views.js";

const FIELDS = { q: "question", r: "retriever", with: "other", steps: "steps", hops: "hops", k: "k", where: "where" };
const DEFAULTS = { steps: "own", k: "10" };
const known = new Map(); // name -> retriever
let answers = [];
let running = null;
let wanted = null; // the beam that the address asks for
let early = false; // a question was asked before the server had said what it has
let later = null; // the timer that asks a server again that is loading

const beam = new BeamPanel(byId("beam"), () => remember());
const value = (id) => byId(id).value.trim();

/** Read what the server has. */
async function connect() {
  try {
    const { limits, retrievers, answers: methods } = await read("/v1/retrievers");
    offer(methods);
    byId("k").max = limits.k;
    byId("hops").max = limits.hops;
    byId("question").maxLength = limits.characters;
    learn(retrievers);
    byId("state").textContent = retrievers.length > 1 ? several(retrievers.length, "retriever") : `${retrievers[0].retriever}: ${several(retrievers[0].passages, "passage")}`;
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return unknown(error);
  }
}

/** Let the language model of the server answer, where there is one. */
function offer(methods) {
  byId("answer-open").hidden = !methods.length;
  byId("method-label").hidden = methods.length < 2;
  refill(byId("method"), methods.map((name) => el("option", { value: name }, name)));
}

/** What can be shown where the server asks for a key, or does not answer. */
async function unknown(error) {
  const again = async () => (await connect()) && begin();
  const [, loading] = /^the server is loading (.*);/.exec(error.message) ?? [];
  if (loading) {
    byId("state").textContent = `Loading ${loading} …`;
    refill(byId("start"), el("p", { class: "quiet" }, `Loading ${loading} …`));
    byId("start").hidden = false;
    clearTimeout(later);
    later = setTimeout(again, 2000);
    return false;
  }
  byId("state").textContent = error.status === 401 ? "A key is needed" : "Not connected";
  try {
    const { retrievers } = await read("/health");
    const plain = { name: "", scores: "", kind: "", no_beam: null, fields: [], examples: [], hops: { steps: "single", max: null } };
    learn(retrievers.map((one) => ({ ...plain, ...one })));
  } catch {
    // The error that is shown says it already.
  }
  byId("start").hidden = false;
  refill(byId("start"), problemCard(error, { again, openKey }));
  return false;
}

function learn(retrievers) {
  known.clear();
  for (const one of retrievers) known.set(one.retriever, one);
  const option = (one) => el("option", { value: one.retriever }, `${one.retriever} (${kindOf(one)})`);
  const [chosen, other] = [value("retriever"), value("other")];
  refill(byId("retriever"), retrievers.map(option));
  refill(byId("other"), el("option", { value: "" }, "nothing"), retrievers.map(option));
  if (known.has(chosen)) byId("retriever").value = chosen;
  if (known.has(other)) byId("other").value = other;
  byId("lead-beam").hidden = !retrievers.some(hasBeam);
}

/** Whether a retriever has a beam to show; one that is not described yet has none. */
const hasBeam = (info) => Boolean(info.kind) && !info.no_beam;

/** The kind of a retriever, and how it goes. */
function kindOf({ kind, hops, passages }) {
  if (!kind) return several(passages, "passage");
  return hops.steps === "single" ? plainName(kind) : `${plainName(kind)}, ${ownSteps(hops)}`;
}

/** The state in the address -> the form. Returns whether there is a question. */
function restore() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const [name, id] of Object.entries(FIELDS)) {
    const field = byId(id);
    const text = state.get(name) ?? DEFAULTS[name] ?? (name === "r" ? ([...known.keys()][0] ?? "") : "");
    if (field.tagName !== "SELECT" || [...field.options].some((one) => one.value === text)) field.value = text;
  }
  const [, letter, place, step] = /^([AB])(\d+)\.(\d+)$/.exec(state.get("beam") ?? "") ?? [];
  wanted = letter ? { letter, place: Number(place) - 1, step: Number(step) - 1 } : null;
  adapt();
  return value("question") !== "";
}

/** The form -> the state in the address, so that the view can be shared. */
function remember(push = false) {
  const state = new URLSearchParams();
  for (const [name, id] of Object.entries(FIELDS)) {
    const text = value(id);
    if (text && text !== DEFAULTS[name] && !(name === "hops" && byId("hops").disabled)) state.set(name, text);
  }
  if (beam.trace) state.set("beam", `${beam.answer.letter}${beam.place + 1}.${beam.step + 1}`);
  const address = `#${state}`;
  if (address !== location.hash) history[push ? "pushState" : "replaceState"](null, "", address);
}

/** Let the form fit what is chosen. */
function adapt() {
  const info = known.get(value("retriever"));
  const steps = value("steps");
  byId("hops").disabled = steps === "own" || steps === "single";
  byId("hops").closest("label").hidden = byId("hops").disabled;
  byId("steps").options[0].textContent = info ? `as set up (${ownSteps(info.hops)})` : "as set up";
  const chips = (info?.fields ?? []).slice(0, 12).map(({ name: field }) => el("button", { type: "button", class: "chip", "aria-label": `Filter by ${field}`, on: { click: () => filterBy(field) } }, field));
  refill(byId("fields"), chips.length ? ["Fields: ", chips] : null);
  byId("where").placeholder = info?.fields.length ? info.fields.slice(0, 2).map((field) => field.where).join(" and ") : "field=value";
  const chosen = [info, known.get(value("other"))].filter(Boolean);
  byId("k").closest("label").hidden = chosen.every((one) => !["single", "ranked"].includes(stepsOf(one)));
}

/** How a retriever retrieves where nothing else is asked for, short enough for the list to choose from. */
function ownSteps({ steps, max }) {
  if (steps === "dynamic") return "until DONE";
  if (steps === "single") return "one step";
  return `${max ? `${max} ` : ""}${steps === "ranked" ? "ranked " : ""}${max === 1 ? "hop" : "hops"}`;
}

/** The name of a field, as a filter writes it. */
const quoted = (field) => (/^[^\s()|,=<>!"']+$/.test(field) ? field : JSON.stringify(field));

function filterBy(field) {
  const box = byId("where");
  box.value = `${box.value.trim()}${box.value.trim() ? " and " : ""}${quoted(field)}=`;
  box.focus();
}

const stepsOf = (info) => (value("steps") === "own" ? (info?.hops.steps ?? "single") : value("steps"));

function askOf(info) {
  const steps = value("steps");
  const most = Number(value("hops")) || null;
  const hops = steps === "own" ? null : { steps, ...(steps !== "single" && most ? { max: most } : {}) };
  return { question: value("question"), k: Number(value("k")) || 10, where: value("where"), steps: stepsOf(info), hops };
}

/** Ask the retrievers that are chosen. */
async function run(push = true) {
  if (!value("question")) {
    byId("question").focus();
    announce("Type a question first.");
    return;
  }
  if (!known.size) {
    early = true;
    return;
  }
  running?.abort();
  const mine = (running = new AbortController());
  stopAnswer();
  byId("written").hidden = true;
  if (!beam.box.hidden) beam.close();
  remember(push);
  document.title = `${value("question").slice(0, 60)} · grls`;
  document.body.classList.add("asked");
  byId("start").hidden = true;
  byId("results").hidden = false;
  const names = [...new Set([value("retriever"), value("other")])].filter((name) => known.has(name));
  const acts = { openKey, again: () => run(false), beam: showBeam, changed: compare };
  answers = names.map((name, n) => new Answer("AB"[n], known.get(name), askOf(known.get(name)), acts));
  refill(byId("answers"), answers.map((one) => one.box));
  byId("answers").classList.toggle("two", answers.length > 1);
  compare();
  busy(true);
  await Promise.all(answers.map((one) => one.run(mine.signal)));
  if (running !== mine) return;
  running = null;
  busy(false);
  compare();
  if (answers.length > 1) announce([...answers.map((one) => one.said), byId("agreement").textContent].join(" "));
  const asked = wanted && answers.find((one) => one.letter === wanted.letter);
  if (asked && !asked.error && !asked.info.no_beam) await beam.open(asked, wanted.place, wanted.step);
  wanted = null;
}

function busy(now) {
  byId("results").setAttribute("aria-busy", String(now));
  const [shown, gone] = now ? [byId("cancel"), byId("ask")] : [byId("ask"), byId("cancel")];
  const focused = document.activeElement === gone;
  shown.hidden = false;
  gone.hidden = true;
  if (focused) shown.focus();
}

function cancel() {
  running?.abort();
}

function compare() {
  byId("agreement").textContent = answers.length > 1 ? agree(...answers) : noBeam(answers[0]?.info);
}

/** Why a retriever has no beam, where others have one: the page speaks of beams then. */
const noBeam = (info) => (info?.no_beam && [...known.values()].some(hasBeam) ? `There is no beam to see: ${info.no_beam}` : "");

function showBeam(answer, place) {
  wanted = null;
  beam.open(answer, place);
}

/** What is shown before the first question. */
function welcome() {
  const chosen = known.get(value("retriever"));
  const holder = chosen?.examples.length ? chosen : [...known.values()].find((one) => one.examples.length);
  const examples = (holder?.examples ?? []).slice(0, 6);
  const chips = examples.map((text) => el("li", null, el("button", { type: "button", class: "example", dir: "auto", on: { click: () => tryOut(text, holder.retriever) } }, text)));
  const title = holder === chosen ? "Try one of these" : `Try one of these, with ${holder?.retriever}`;
  const rows = [...known.values()].map((one) => el("li", null, el("strong", null, one.retriever), el("span", null, `${plainName(one.name)}, ${several(one.passages, "passage")}`)));
  refill(
    byId("start"),
    chips.length ? [el("h2", null, title), el("ul", { class: "examples" }, chips)] : el("p", { class: "quiet" }, "Type a question above. Its passages appear here, one hop after the other, and each opens to show why it was found."),
    rows.length > 1 ? [el("h2", null, "On this server"), el("ul", { class: "served" }, rows)] : null,
  );
  byId("start").hidden = false;
}

/** Ask an example, of a retriever that has its passages. */
function tryOut(text, retriever) {
  byId("question").value = text;
  byId("retriever").value = retriever;
  adapt();
  run();
}

/** What was typed while the page was loading stays, where the address says nothing. */
const untouched = () => byId("results").hidden && !location.hash.slice(1);

function begin() {
  if (untouched()) {
    adapt();
    if (early && value("question")) {
      early = false;
      return run();
    }
  } else if (restore()) return run(false);
  running?.abort();
  document.body.classList.remove("asked");
  byId("results").hidden = true;
  document.title = "grls";
  welcome();
  return undefined;
}

function openKey() {
  byId("key-field").value = key.get();
  byId("key").returnValue = "";
  byId("key").showModal();
}

function wireKey() {
  byId("key-open").addEventListener("click", openKey);
  byId("key-form").addEventListener("submit", (event) => {
    const how = event.submitter?.value;
    if (how === "save") key.set(value("key-field"));
    if (how === "forget") key.set("");
    byId("key-field").value = "";
    byId("key-open").classList.toggle("on", key.get() !== "");
    if (how === "save" || how === "forget") connect().then((there) => there && begin());
  });
}

function wireTheme() {
  const order = ["system", "light", "dark"];
  const show = () => (byId("theme").textContent = `Theme: ${document.documentElement.dataset.theme ?? "system"}`);
  byId("theme").addEventListener("click", () => {
    const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % 3];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("grls-theme", next);
    } catch {
      // The colours hold for this page.
    }
    show();
  });
  show();
}

async function copyLink() {
  const button = byId("link");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
    announce("The link is copied.");
  } catch {
    button.textContent = "Copy it from the address bar";
  }
  setTimeout(() => (button.textContent = "Copy link"), 1800);
}

function walk(event, head) {
  const column = [...head.closest(".answer").querySelectorAll(".card-head")];
  const place = column.indexOf(head);
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  let next = null;
  if (by) next = column[place + by] ?? (place + by < 0 ? byId("question") : null);
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    const others = [...document.querySelectorAll(".answer")].find((one) => !one.contains(head))?.querySelectorAll(".card-head");
    next = others?.[Math.min(place, others.length - 1)];
  }
  if (event.key === "b") {
    const answer = answers.find((one) => one.box.contains(head));
    if (answer.info.no_beam) announce(answer.info.no_beam);
    else showBeam(answer, answer.hopOf(place));
    event.preventDefault();
  }
  if (!next) return;
  next.focus();
  event.preventDefault();
}

function pressed(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (running) cancel();
    else if (!stopAnswer() && !beam.box.hidden) beam.close();
    return;
  }
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing) {
    byId("question").focus();
    byId("question").select();
    event.preventDefault();
  } else if (event.key === "?" && !typing) byId("help").showModal();
  else if (event.target.matches(".card-head")) walk(event, event.target);
  else if (event.key === "ArrowDown" && event.target.id === "question") {
    const first = document.querySelector(".card-head");
    if (first && !value("question").includes("\n")) {
      first.focus();
      event.preventDefault();
    }
  }
}

function wire() {
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    run();
  });
  byId("cancel").addEventListener("click", cancel);
  byId("form").addEventListener("change", adapt);
  byId("retriever").addEventListener("change", () => !byId("start").hidden && known.get(value("retriever"))?.name && welcome());
  byId("answer-open").addEventListener("click", () => showAnswer(byId("written"), { ...answers[0].body(), method: value("method") }));
  byId("code-open").addEventListener("click", () => openCode(answers[0].request(), answers.length > 1 ? answers[0].info.retriever : null));
  byId("link").addEventListener("click", copyLink);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  document.addEventListener("keydown", pressed);
  addEventListener("popstate", () => begin());
  if (matchMedia("(max-width: 700px)").matches) byId("options").open = false;
  wireKey();
  wireTheme();
  wireCode();
}

wire();
if (location.hash.slice(1)) restore();
if (await connect()) begin();
