// Sends requests to the server that the page came from, and reads streams of events.

const KEY = "grls-key";

/** The API key of this tab; it is forgotten with the tab. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An error, in words. */
export class Problem extends Error {
  constructor(status, detail, { errors = [], after = null } = {}) {
    super(detail);
    Object.assign(this, { status, errors, after });
  }
}

/** Whether a request was cancelled here. */
export const cancelled = (error) => error?.name === "AbortError";

/** What a status means, in plain words. */
export function meaning(status) {
  const known = {
    0: "The server cannot be reached",
    400: "The request cannot be read",
    401: "This server asks for an API key",
    403: "This is not allowed",
    404: "There is no such thing here",
    408: "The request came too slowly",
    409: "Another window has gone on",
    413: "The question is too large",
    422: "The question cannot be answered like this",
    429: "Too many questions at once",
    500: "The server failed at this question",
    503: "The server is busy",
  };
  return known[status] ?? (status >= 500 ? "The server failed" : "The server refused the question");
}

async function problemOf(response) {
  const after = Number(response.headers.get("retry-after")) || null;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Something between the page and the server answered.
  }
  const detail = typeof body.detail === "string" ? body.detail : `The answer has the status ${response.status}.`;
  const errors = Array.isArray(body.errors) ? body.errors : [];
  return new Problem(response.status, detail, { errors, after });
}

async function ask(address, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(address, { ...options, headers });
  } catch (error) {
    if (cancelled(error)) throw error;
    throw new Problem(0, "Is it still running, and is this machine online? Ask again when it is.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

const posted = (body, signal) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

/** What an address answers. */
export const read = async (address, signal) => (await ask(address, { signal })).json();

/** What an address answers to a body. */
export const send = async (address, body, signal) => (await ask(address, posted(body, signal))).json();

/** Where a passage is. */
export const addressOf = (id, retriever) =>
  `/v1/passages/${encodeURIComponent(id)}?${new URLSearchParams({ retriever })}`;

/** The hops of a query, each as soon as the server sends it. */
export async function* hops(body, signal) {
  const response = await ask("/v1/stream", posted(body, signal));
  for await (const { name, data } of events(response.body)) {
    if (name === "problem") throw new Problem(data.status, data.detail, { errors: data.errors });
    if (name === "end") return;
    if (name === "hop") yield data;
  }
  throw new Problem(0, "The connection ended before the last hop. Ask again.");
}

/** The events of a stream (server-sent events, with JSON as data). */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value.replaceAll("\r", "");
      const blocks = held.split("\n\n");
      held = blocks.pop();
      for (const block of blocks) if (block.trim()) yield event(block);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function event(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return { name, data: JSON.parse(data.join("\n")) };
}
