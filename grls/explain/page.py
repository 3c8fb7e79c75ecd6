"""Explanations as files: an HTML page, in which the script of the server draws, and all facts as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from grls.explain.explain import MEANING, Explanation
from grls.explain.text import (
    HEADER,
    TEXT_ALONE,
    cells,
    number,
    plain_values,
    search,
    shortened,
    why,
    with_id,
)
from grls.explain.tree import Tree
from grls.io.files import atomic_file, write_json
from grls.io.html import document
from grls.io.progress import counted

STYLE = """\
:root { --good: #2f7d46; --beam: #c77700; --model: #b3261e; --other: #4c56b0; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; margin: 1rem 0;
}
h1 { font-size: 1.3rem; }
h2 { font-size: 1.1rem; margin: 0 0 8px; } h3 { font-size: 1rem; margin: 20px 0 6px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.verdict {
  border-left: 6px solid var(--tone); border-radius: 6px; padding: 8px 14px; margin: 12px 0;
  background: color-mix(in srgb, var(--tone) 14%, var(--page));
}
.verdict b { display: block; }
.good { --tone: var(--good); } .beam { --tone: var(--beam); }
.model { --tone: var(--model); } .other { --tone: var(--other); }
.legend { list-style: none; padding: 0; margin: 0.5rem 0; }
th { color: var(--soft); font-weight: 600; } .t { text-align: left; font-family: ui-monospace, monospace; }
.text { text-align: left; white-space: normal; min-width: 16rem; }
tr.left { background: color-mix(in srgb, var(--beam) 16%, var(--page)); font-weight: 600; }
tr.gone { color: var(--soft); }
tr.mine { background: color-mix(in srgb, var(--good) 16%, var(--page)); }
@media (max-width: 600px) {
  section { padding: 12px; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: 6px; }
}
"""

_TONE = {
    "found": "good", "duplicate": "good", "excluded": "other", "done first": "other", "pruned": "beam",
    "early stop": "beam", "scored worse": "model",
}  # fmt: skip

_COLUMNS = """log p: log-probability of the token after its prefix. prefix: log-probability of the prefix.
allowed: number of allowed tokens. rank: rank among the candidates of the step; in brackets, the rank that a
dropped prefix would have had. best: score of the best candidate. bar: score of the last candidate kept, or of
the k-th result if that beat the prefix. margin: prefix minus bar. preferred: tokens with a higher probability
after the same prefix. All scores are in nats."""


_DRAWN_STYLE = """\
.beam-tree .tree-now { display: none; }
.tree-node.pruned.chosen rect:not(.fill) {
  fill: var(--card); stroke: var(--thread); stroke-width: 2; stroke-dasharray: 5 4;
}
.tree-node.pruned.chosen text { fill: var(--thread); }
"""
"""What differs from the page of the server: no step is looked at, and a filled prefix may be dropped."""
_DRAWN = {"kept": "kept", "finished": "finished", "beaten": "beaten", "lost": "pruned"}
"""Kind of a node -> what ``tree.js`` calls it."""
_DRAW = """
for (const box of document.querySelectorAll(".tree-box")) {
  const trace = JSON.parse(box.dataset.tree);
  const chosen = new Set(trace.steps.flatMap((step) => step.tokens.filter((one) => one.gold)));
  const last = trace.steps.length - 1;
  if (last >= 0) box.append(drawTree(trace, arranged(trace), chosen, last, () => {}));
  box.after(legend("It is a prefix of the explained passage; dashed: it was dropped."));
}
"""


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
    query = explanations[0].query
    sections = "\n".join(map(_section, explanations))
    body = f"<main>\n<h1>{escape(query.text)}</h1>\n{sections}\n</main>"
    page = files("grls.serve.page")
    styles = page.joinpath("page.css").read_text(encoding="utf-8")
    colours = re.search(r"^:root (\{.*?^\})", styles, re.DOTALL | re.MULTILINE)
    rules = re.findall(r"^\.(?:tree|legend|kept|finished|pruned|beaten)\b.*\n", styles, re.MULTILINE)
    assert colours is not None
    style = f"{STYLE}.beam-tree {colours[1]}\n{''.join(rules)}{_DRAWN_STYLE}"
    modules = (page.joinpath(name).read_text(encoding="utf-8") for name in ("dom.js", "tree.js"))
    script = re.sub(r"^import .*\n|^export ", "", "".join(modules), flags=re.MULTILINE) + _DRAW
    named = shortened(query.text, 70) if query.id == TEXT_ALONE else query.id
    return document(f"Why: {named}", style, body, script)


def drawn(tree: Tree) -> dict[str, Any]:
    """A beam tree as the script ``tree.js`` of the server takes it, best prefix of a step first."""
    steps: list[dict[str, Any]] = []
    indexes: dict[int, int] = {}  # of the nodes among those of the step before
    texts: dict[int, str] = {-1: ""}
    for step, candidates in enumerate(tree.candidates, 1):
        numbers = [n for n, node in enumerate(tree.nodes) if node.step == step]
        numbers.sort(key=lambda n: -tree.nodes[n].score)
        parents = list(dict.fromkeys(tree.nodes[n].parent for n in numbers))
        tokens = []
        for n in numbers:
            node = tree.nodes[n]
            texts[n] = f"{texts[node.parent]} {node.token}".strip()
            rank = f" as #{node.rank}" if node.rank else ""
            tip = f"{texts[n]}: {node.score:.4f} nats, {node.kind}{rank} {', '.join(node.passages)}".rstrip()
            before = tree.nodes[node.parent].score if node.parent >= 0 else 0.0
            tokens.append({
                "beam": parents.index(node.parent), "token": node.token, "fate": _DRAWN[node.kind],
                "constrained": min(node.score - before, 0.0), "gold": node.gold, "tip": tip,
            })  # fmt: skip
        beams = [{"parent": indexes.get(parent)} for parent in parents]
        steps.append({"candidates": candidates, "beams": beams, "tokens": tokens})
        indexes = {n: index for index, n in enumerate(numbers)}
    return {"steps": plain_values(steps)}


def _section(e: Explanation) -> str:
    known = [
        ("passage", with_id(e.gold, e.gold_text)),
        *([] if e.query.id in (TEXT_ALONE, e.query.text) else [("query", e.query.id)]),
        ("hop", str(e.hop) + (f", after {', '.join(e.evidence)}" if e.evidence else "")),
        ("search", search(e)),
    ]
    if e.score is not None:
        known.append(("its score", f"{number(e.score)} nats (whole passage {number(e.complete)})"))
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in known)
    tree = escape(json.dumps(drawn(e.tree)))
    return (
        f"<section><h2>{escape(e.gold)}</h2><dl>{items}</dl>"
        f'<div class="verdict {_TONE[e.verdict]}"><b>{escape(e.verdict)}: {escape(MEANING[e.verdict])}</b>'
        f"{escape(why(e))}</div>"
        '<h3>Beam tree</h3><div class="beam-tree">'
        f'<div class="tree-box" tabindex="0" data-tree="{tree}"></div>'
        "<noscript>The tree is drawn by a script; the path below says the same.</noscript></div>"
        f"{_path(e)}{_results(e)}</section>"
    )


def _path(e: Explanation) -> str:
    if not e.path:
        return ""
    rows = []
    for row in e.path:
        kind = "left" if row.fate in ("pruned", "beaten") else "gone" if row.fate is None else ""
        rows.append(_row(cells(row), kind, {1: "t", 10: "t"}))
    rest = e.tokens - len(e.path)
    tokens = counted(rest, "further token is", "further tokens are")
    forced = f"{tokens} not decoded: one passage is left. " if rest else ""
    return (
        f"<h3>The passage's path</h3>{_table(HEADER, rows, {1: 't', 10: 't'})}"
        f'<p class="note">{escape(forced + _COLUMNS)}</p>'
    )


def _results(e: Explanation) -> str:
    if not e.results:
        return "<p>The search returned nothing.</p>"
    classes = {1: "t", 4: "text"}
    rows = []
    for r in e.results:
        texts = (str(r.rank), r.id, number(r.score), number(r.complete), r.text)
        rows.append(_row(texts, "mine" if r.id == e.gold else "", classes))
    return f"<h3>Returned</h3>{_table(('rank', 'id', 'score', 'whole', 'passage'), rows, classes)}"


def _table(header: Sequence[str], rows: Sequence[str], classes: dict[int, str]) -> str:
    head = "".join(f'<th class="{classes.get(n, "")}">{escape(name)}</th>' for n, name in enumerate(header))
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _row(texts: Sequence[str], kind: str, classes: dict[int, str]) -> str:
    data = "".join(f'<td class="{classes.get(n, "")}">{escape(text)}</td>' for n, text in enumerate(texts))
    return f'<tr class="{kind}">{data}</tr>'
