// Makes elements. A text gets into the page here alone, as text: no text is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Control characters as visible signs; line breaks and tabs stay. */
export function shown(text) {
  return String(text ?? "")
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421");
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "data") for (const [key, one] of Object.entries(value)) node.dataset[key] = one;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
  return node;
}

/** An element. `on` are its listeners, `vars` its custom properties, `data` its data attributes. */
export const el = (tag, props, ...children) => filled(document.createElement(tag), props, children);

/** An element of a drawing. */
export const draw = (tag, props, ...children) => filled(document.createElementNS(SVG, tag), props, children);

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Replace what an element holds. */
export function refill(node, ...children) {
  node.replaceChildren();
  return filled(node, null, children);
}

/** Say something to those who listen to the page. */
export function announce(text) {
  byId("live").textContent = shown(text);
}

/** Whether things may move. */
export const moves = () => !matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Bring an element into view. */
export function reveal(node, block = "nearest") {
  node.scrollIntoView({ behavior: moves() ? "smooth" : "auto", block });
}

/** A text of at most `most` characters. */
export function short(text, most) {
  const plain = shown(text).replace(/\s+/g, " ").trim();
  return plain.length > most ? `${plain.slice(0, most - 1).trimEnd()}…` : plain;
}

/** A number with separators. */
export const count = (number) => Number(number).toLocaleString("en");

/** "1 passage", "2 passages". */
export const several = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A probability, from its logarithm. The space before the sign does not break. */
export function percent(log) {
  const value = log === null || log === undefined ? 0 : 100 * Math.exp(log);
  if (value === 0) return "0\u00a0%";
  if (value > 99.95) return "100\u00a0%";
  if (value >= 10) return `${value.toFixed(value > 99 ? 1 : 0)}\u00a0%`;
  if (value >= 0.1) return `${value.toFixed(1)}\u00a0%`;
  return value >= 0.001 ? `${value.toFixed(3)}\u00a0%` : "<\u00a00.001\u00a0%";
}

/** A score with its sign; what is rounded to zero has none. */
export function signed(value) {
  if (value === null || value === undefined) return "–";
  const digits = Math.abs(value).toFixed(2);
  return `${value < 0 && Number(digits) ? "−" : ""}${digits}`;
}

/** The name of a retriever or of its scores, as people write it. */
export const plainName = (name) =>
  name.replace(/\bbm25\b/g, "BM25").replace(/\b(biencoder|dense)\b/g, "bi-encoder").replaceAll("_", " ");

/** Mark the edges of a box beyond which there is more: they fade. */
export function edges(box) {
  const mark = () => {
    box.classList.toggle("more-before", box.scrollLeft > 2);
    box.classList.toggle("more-after", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  };
  new ResizeObserver(mark).observe(box);
  box.addEventListener("scroll", mark, { passive: true });
  return mark;
}

const COMMON = new Set(
  // English, then German, French, Spanish, Italian and Dutch, without those that mean more in English (war, man)
  "a also an and are as at be been but by did do does for from had has have he her his how if in into is it its not of on or she so that the their them then there they this to was were what when where which who whom whose why will with you your aber als am auf aus bei bin bist das dass dem den der des die du durch ein eine einem einen einer eines er es für ich ihr im ist kann mit nach nicht oder sein sich sie sind und unter vom von vor wenn wer werden wie wird wo zu zum zur au aux avec ce ces cette comme dans de elle en est et il la le les leur mais ne nous où ou par pas qu que quel quelle qui quoi sa se ses sont sur un une vous al como con cuando cuál del donde el ella entre esta este ha las lo los más no para pero por qué quién si sin sobre su sus una y che chi ci cosa da dal della delle di dove e gli i ma nel nella non per quale sono sul uno aan bij dat deze dit een geen heeft het hij ik kan maar naar niet om ook op te tot uit van voor waar wat wordt ze zijn".split(" "),
);

/** The words of a text that say something, in lower case. */
export function words(text) {
  const listed = String(text ?? "").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  return new Set(listed.filter((word) => word.length > 1 && !COMMON.has(word)));
}

/** The part of a text around the words that are wanted: … stands for what is before. */
export function around(text, wanted) {
  const places = [...text.matchAll(/[\p{L}\p{N}]+/gu)].filter((word) => wanted.has(word[0].toLowerCase())).slice(0, 500);
  const near = ({ index }) => new Set(places.filter((word) => word.index >= index && word.index < index + PART).map((word) => word[0].toLowerCase())).size;
  const best = places.reduce((one, other) => (near(other) > near(one) ? other : one), places[0]);
  if (!best || best.index < PART) return text;
  const before = text.slice(best.index - PART / 4, best.index);
  return `… ${before.slice(Math.max(before.lastIndexOf("\n"), before.search(/\s/)) + 1)}${text.slice(best.index)}`;
}

const PART = 240; // characters that a closed card surely shows

/** The words that two texts have in common. */
export function inCommon(one, other) {
  const held = words(other);
  return [...words(one)].filter((word) => held.has(word));
}

/** A text, with these words marked. */
export function marked(text, wanted) {
  const parts = shown(text).split(/([\p{L}\p{N}]+)/u);
  return parts.map((part, n) => (n % 2 && wanted.has(part.toLowerCase()) ? el("mark", null, part) : part));
}
