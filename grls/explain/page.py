"""Explanations as files: all facts as JSON, and a page that the scripts of the server's page draw."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from grls.explain.beams import TracedStep
from grls.explain.explain import Explanation, PathRow
from grls.explain.options import TEXT_ALONE
from grls.explain.text import explanation_parts, parts_text, plain_values, shortened, why
from grls.io.files import atomic_file, write_json
from grls.io.html import document

_STYLE = """\
main { padding: 0; }
h1 { font-size: 1.3rem; }
section { margin: 1.2rem 0; padding: 1rem; border: 1px solid var(--line); border-radius: 10px; }
.tree-box { margin-top: 12px; }
.beam-tree .tree-now { display: none; }
.tree-node.pruned.chosen rect:not(.fill) {
  fill: var(--card); stroke: var(--thread); stroke-width: 2; stroke-dasharray: 5 4;
}
.tree-node.pruned.chosen text { fill: var(--thread); }
"""
"""What differs from the page of the server: no step is looked at, and a filled prefix may be dropped."""
_DRAW = """
const main = document.querySelector("main");
for (const { gold, parts, trace } of JSON.parse(main.dataset.explained)) {
  const [facts, verdict, ...rest] = parts.map(part);
  const name = { role: "group", "aria-label": "Drawing of the beam" };
  const box = el("div", { class: "tree-box", tabindex: "0", ...name });
  const chosen = new Set(trace.steps.flatMap((step) => step.tokens.filter((one) => one.gold)));
  const last = trace.steps.length - 1;
  if (last >= 0) box.append(drawTree(trace, arranged(trace), chosen, last, () => {}));
  const key = legend("It is a prefix of the explained passage; dashed: it was dropped.");
  const report = (...shown) => el("div", { class: "report" }, shown);
  const tree = el("div", { class: "beam-tree" }, box, key);
  main.append(el("section", null, el("h2", null, gold), report(facts, verdict), tree, report(rest)));
}
"""
_COLUMNS = """log p: log-probability of the token after its prefix. prefix: log-probability of the prefix.
allowed: number of allowed tokens. rank: rank among the candidates of the step; in brackets, the rank that a
dropped prefix would have had. best: score of the best candidate. bar: score of the last candidate kept, or of
the k-th result if that beat the prefix. margin: prefix minus bar. preferred: tokens with a higher probability
after the same prefix. All scores are in nats."""


def write_explanations(output: str, explanations: Sequence[Explanation]) -> list[str]:
    """Write OUTPUT.html and OUTPUT.json, and return their paths."""
    write_json(f"{output}.json", [facts(e) for e in explanations])
    with atomic_file(f"{output}.html") as stream:
        stream.write(html_page(explanations))
    return [f"{output}.html", f"{output}.json"]


def facts(e: Explanation) -> dict[str, Any]:
    fields: dict[str, Any] = plain_values(e)
    fields["query"].pop("metadata")
    fields |= fields.pop("stop").options
    return fields | {"verdict": e.verdict, "why": why(e), "hop": e.hop, "left": plain_values(e.left)}


def html_page(explanations: Sequence[Explanation]) -> str:
    """Without scripts it shows the text of the reports."""
    query = explanations[0].query
    explained = [
        {
            "gold": e.gold,
            "parts": [part._asdict() for part in explanation_parts(e)],
            "trace": {"steps": drawn(e.steps, e.path)},
        }
        for e in explanations
    ]
    data = escape(json.dumps(plain_values(explained)))
    report = escape("\n\n\n".join(parts_text(explanation_parts(e)) for e in explanations))
    body = (
        f'<main data-explained="{data}">\n<h1>{escape(query.text)}</h1>\n'
        f'<noscript><pre class="scroll">{report}</pre></noscript>\n</main>\n'
        f'<p class="note">{escape(_COLUMNS)}</p>'
    )
    page = files("grls.serve.page")
    style = page.joinpath("page.css").read_text(encoding="utf-8") + _STYLE
    modules = (page.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in ("dom", "tree", "report"))
    script = re.sub(r"^import .*\n|^export ", "", "".join(modules), flags=re.MULTILINE) + _DRAW
    named = shortened(query.text, 70) if query.id == TEXT_ALONE else query.id
    return document(f"Why: {named}", style, body, script)


def drawn(steps: Sequence[TracedStep], path: Sequence[PathRow]) -> list[dict[str, Any]]:
    """The steps of a search for ``tree.js``, with the prefixes of a passage marked ``gold``.

    Those that the search dropped or does not list are added.
    """
    shown: list[dict[str, Any]] = plain_values(steps)
    parent: int | None = None  # the passage's prefix among the tokens of the step before
    for n, row in enumerate(path):
        if n == len(shown):
            shown.append({"candidates": 0, "beams": [], "tokens": []})
        beams, tokens = shown[n]["beams"], shown[n]["tokens"]
        beam = next((b for b, one in enumerate(beams) if one["parent"] == parent), len(beams))
        if beam == len(beams):
            beams.append({"parent": parent})
        token = next((one for one in tokens if (one["beam"], one["token"]) == (beam, row.token)), None)
        if token is None:
            fate = row.fate or "pruned"
            token = {"beam": beam, "token": row.token, "constrained": row.log_probability, "fate": fate}
            tokens.append(token)
        token["gold"] = True
        parent = tokens.index(token)
    return shown
