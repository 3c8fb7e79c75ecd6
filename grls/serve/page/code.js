// Writes a request as code: for a shell, for Python with and without grls, for JavaScript.

import { announce, byId, el, refill, shown } from "./dom.js";
import { key } from "./api.js";

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A value as Python writes it. */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, one]) => `${python(name)}: ${python(one)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

// The key itself is never written into code: it stands in the variable GRLS_KEY.
function curl({ address, body }, origin) {
  const lines = [`curl ${address === "/v1/stream" ? "--no-buffer " : ""}${shell(origin + address)}`];
  if (key.get()) lines.push(`  --header "Authorization: Bearer $GRLS_KEY"`);
  lines.push(`  --json ${shell(JSON.stringify(body))}`);
  return lines.join(" \\\n");
}

function library({ body, address }) {
  const { query, k, where, hops, retriever } = body;
  const named = JSON.stringify(`runs/${retriever}`);
  const filter = where ? `, where=${python(where)}` : "";
  const lines = ["import grls", "", `retriever = grls.load(${named})  # the folder that the server has`];
  if (hops && hops.steps !== "single") {
    const most = hops.max ? `max=${hops.max}, ` : "";
    lines.push(`retriever = retriever.hops(${most}steps=${python(hops.steps)})`);
  }
  if (address === "/v1/stream") {
    lines.push(`for hop in retriever.stream(${python(query)}${filter}):`);
    lines.push("    print(hop.number, hop.hit and hop.hit.text, hop.done)");
  } else {
    lines.push(`for hit in retriever.search(${python(query)}, k=${k}${filter}):`);
    lines.push("    print(hit.score, hit.id, hit.text)");
  }
  return lines.join("\n");
}

function client({ address, body }, origin) {
  const streams = address === "/v1/stream";
  const imports = [streams && "import json", key.get() && "import os"].filter(Boolean);
  const lines = [...imports, ...(imports.length ? [""] : []), "import httpx", "", `body = ${python(body)}`];
  if (key.get()) lines.push(`headers = {"Authorization": f"Bearer {os.environ['GRLS_KEY']}"}`);
  const call = `${python(origin + address)}, json=body${key.get() ? ", headers=headers" : ""}, timeout=60`;
  if (streams) {
    lines.push(`with httpx.stream("POST", ${call}) as response:`, "    for line in response.iter_lines():");
    lines.push(`        if line.startswith("data: "):`, `            print(json.loads(line.removeprefix("data: ")))`);
  } else {
    lines.push(`answer = httpx.post(${call})`, "answer.raise_for_status()");
    lines.push(`for hit in answer.json()["results"][0]["hits"]:`, `    print(hit["score"], hit["id"], hit["text"])`);
  }
  return lines.join("\n");
}

function browser({ address, body }, origin) {
  const headers = { "Content-Type": "application/json" };
  const bearer = key.get() ? "\n    Authorization: `Bearer ${process.env.GRLS_KEY}`," : "";
  const lines = [
    `const answer = await fetch(${JSON.stringify(origin + address)}, {`,
    `  method: "POST",`,
    `  headers: {\n    ${JSON.stringify(headers).slice(1, -1).replace(":", ": ")},${bearer}\n  },`,
    `  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),`,
    "});",
  ];
  if (address === "/v1/stream") {
    lines.push("for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {", "  console.log(text);", "}");
  } else {
    lines.push("console.log((await answer.json()).results[0].hits);");
  }
  return lines.join("\n");
}

const LANGUAGES = [
  ["curl", curl],
  ["Python: grls", library],
  ["Python: httpx", client],
  ["JavaScript", browser],
];

/** Show a request as code. `request` has an address and a body; `of`: the retriever, where two are compared. */
export function openCode(request, of = null) {
  const dialog = byId("code");
  byId("code-title").textContent = shown(of ? `The request to ${of} as code` : "This request as code");
  const tabs = LANGUAGES.map(([name, write], n) => {
    const show = () => choose(n);
    return el("button", { type: "button", role: "tab", id: `code-tab-${n}`, "aria-controls": "code-text", on: { click: show } }, name);
  });
  const choose = (chosen) => {
    tabs.forEach((tab, n) => {
      tab.setAttribute("aria-selected", String(n === chosen));
      tab.tabIndex = n === chosen ? 0 : -1;
    });
    byId("code-text").setAttribute("aria-labelledby", `code-tab-${chosen}`);
    byId("code-text").textContent = LANGUAGES[chosen][1](request, location.origin);
  };
  const list = refill(byId("code-tabs"), tabs);
  list.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length;
    choose(next);
    tabs[next].focus();
    event.preventDefault();
  };
  choose(0);
  dialog.showModal();
}

/** Let the button copy what is shown. */
export function wireCode() {
  byId("code-copy").addEventListener("click", async () => {
    const button = byId("code-copy");
    try {
      await navigator.clipboard.writeText(byId("code-text").textContent);
      button.textContent = "Copied";
      announce("The code is copied.");
    } catch {
      getSelection().selectAllChildren(byId("code-text"));
      button.textContent = "Selected: copy with Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 1800);
  });
}
