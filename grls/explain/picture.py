"""The beam tree as SVG: one column a step, one box a prefix, no line crossing another.

Boxes of a column stand in the order of their parents, so that lines do not cross, and as near to their
parents as the boxes beside them allow. A wide beam is cut to the most important boxes: prefixes of the gold
passage, prefixes of results, and the best others. Text is escaped; the file needs no script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from grls.explain.tree import Node, Tree
from grls.io.counts import counted

BOX_WIDTH, BOX_HEIGHT = 132, 36
_COLUMN, _ROW = 176, 46
_LEFT, _TOP, _BOTTOM = 84, 46, 64
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

STYLE = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1c2733; }
.small, .head, .legend { font-size: 11px; fill: #52606d; }
.head tspan { font-weight: 600; fill: #1c2733; }
rect { rx: 6px; stroke-width: 1px; }
.kept { fill: #f3f5f8; stroke: #9fb0c0; }
.finished { fill: #e0f2e5; stroke: #2f7d46; }
.out { fill: #ffffff; stroke: #2f7d46; }
.beaten { fill: #ffffff; stroke: #b4bfca; stroke-dasharray: 2 3; }
.lost { fill: #ffffff; stroke: #c77700; stroke-dasharray: 6 4; stroke-width: 2px; }
.gold { stroke: #c77700; stroke-width: 2.5px; }
.kept.gold { fill: #fff1d6; }
path { fill: none; stroke: #b4bfca; stroke-width: 1.2px; }
path.gold { stroke: #c77700; stroke-width: 3px; }
path.lost { stroke: #c77700; stroke-width: 2px; stroke-dasharray: 6 4; }
"""


class _Placed(NamedTuple):
    """A node with its prefix and the middle of its box."""

    node: Node
    prefix: str
    x: float
    y: float


def draw_tree(tree: Tree, title: str, most: int = 14) -> str:
    """The SVG of a beam tree.

    Args:
        tree: The tree.
        title: Title for screen readers.
        most: Most boxes a column.
    """
    steps = len(tree.candidates)
    shown = [_choose(tree, step, most) for step in range(1, steps + 1)]
    placed = _place(tree, shown)
    top = min((p.y for p in placed.values()), default=0.0)
    placed = {n: p._replace(y=p.y - top + _TOP + _ROW / 2) for n, p in placed.items()}
    root = _TOP + _ROW / 2 - top
    lowest = max([root, *(p.y for p in placed.values())]) + _ROW / 2
    width, height = max(_LEFT + steps * _COLUMN, 560), lowest + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label={quoteattr(_clean(title))}>',
        f"<style>{STYLE}</style>",
        f'<rect width="{width:g}" height="{height:g}" style="fill:#fff;stroke:none"/>',
        *_heads(tree, shown),
        *(_line(placed, n, root) for n in sorted(placed, key=lambda n: tree.nodes[n].gold)),
        f'<text x="12" y="{root + 4:g}">start</text>',
        *(_box(p) for p in placed.values()),
        *_legend(lowest),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _choose(tree: Tree, step: int, most: int) -> list[int]:
    """The nodes of a step that are drawn."""
    here = [n for n, node in enumerate(tree.nodes) if node.step == step]
    leading = _leading(tree)
    here.sort(key=lambda n: (not tree.nodes[n].gold, n not in leading, -tree.nodes[n].score))
    return here[:most]


def _leading(tree: Tree) -> set[int]:
    """Nodes on the way to a result."""
    leading: set[int] = set()
    for n, node in enumerate(tree.nodes):
        at = n if node.rank is not None else -1
        while at >= 0 and at not in leading:
            leading.add(at)
            at = tree.nodes[at].parent
    return leading


def _place(tree: Tree, shown: Sequence[Sequence[int]]) -> dict[int, _Placed]:
    """Each drawn node's place; y is counted from the middle of the root."""
    placed: dict[int, _Placed] = {}
    order = {-1: 0}
    for column, nodes in enumerate(shown):
        ready = [n for n in nodes if tree.nodes[n].parent in order]
        ready.sort(key=lambda n: (order[tree.nodes[n].parent], -tree.nodes[n].score))
        wanted = [placed[p].y if (p := tree.nodes[n].parent) >= 0 else 0.0 for n in ready]
        for n, y in zip(ready, spread_places(wanted, _ROW), strict=True):
            node = tree.nodes[n]
            before = placed[node.parent].prefix + " " if node.parent >= 0 else ""
            placed[n] = _Placed(node, before + node.token, _LEFT + column * _COLUMN, y)
        order = {n: place for place, n in enumerate(ready)}
    return placed


def spread_places(wanted: Sequence[float], gap: float) -> list[float]:
    """Places at least ``gap`` apart, in the same order, nearest to the wanted places (least squares).

    This is isotonic regression: neighbours that are out of order are pooled.
    """
    blocks: list[tuple[float, int]] = []  # (mean of wanted places minus offsets, size) of each block
    for place, y in enumerate(wanted):
        mean, size = y - place * gap, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + place * gap for place, mean in enumerate(flat)]


def _heads(tree: Tree, shown: Sequence[Sequence[int]]) -> list[str]:
    lines = []
    for column, (nodes, weighed) in enumerate(zip(shown, tree.candidates, strict=True)):
        kept = sum(node.step == column + 1 for node in tree.nodes)
        hidden = f" ({kept - len(nodes)} not drawn)" if kept > len(nodes) else ""
        below = f"{counted(weighed, 'candidate')}" if weighed else "search ended"
        x = _LEFT + column * _COLUMN
        lines.append(f'<text class="head" x="{x}" y="18"><tspan>step {column + 1}</tspan>{hidden}</text>')
        lines.append(f'<text class="small" x="{x}" y="33">{below}</text>')
    return lines


def _line(placed: dict[int, _Placed], n: int, root: float) -> str:
    to = placed[n]
    before = placed.get(to.node.parent)
    x, y = (50.0, root) if before is None else (before.x + BOX_WIDTH, before.y)
    kind = "lost" if to.node.kind == "lost" else "gold" if to.node.gold else "other"
    middle = (x + to.x) / 2
    return f'<path class="{kind}" d="M{x:g} {y:g} C{middle:g} {y:g} {middle:g} {to.y:g} {to.x:g} {to.y:g}"/>'


def _box(p: _Placed) -> str:
    node = p.node
    below = f"{node.score:.2f}"
    if node.kind == "finished":
        name = node.passages[0] if node.passages else ""
        below = f"#{node.rank} {_cut(name, 9)} {below}" if node.rank else f"out {_cut(name, 8)} {below}"
    elif node.kind in ("beaten", "lost"):
        below += f" {node.kind}" if node.kind == "beaten" else " not kept"
    kind: str = "out" if node.kind == "finished" and node.rank is None else node.kind
    kind += " gold" if node.gold else ""
    star = "★ " if node.gold else ""
    tip = f"{p.prefix}\n{node.score:.4f} nats, {node.kind} {', '.join(node.passages)}".strip()
    y = p.y - BOX_HEIGHT / 2
    return (
        f"<g><title>{_text(tip)}</title>"
        f'<rect class="{kind}" x="{p.x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"/>'
        f'<text x="{p.x + 8:g}" y="{y + 15:g}">{star}{_text(_cut(node.token, 16 - len(star)))}</text>'
        f'<text class="small" x="{p.x + 8:g}" y="{y + 29:g}">{_text(below)}</text></g>'
    )


def _legend(lowest: float) -> list[str]:
    """The legend of the boxes, in two rows."""
    entries = (
        ("kept gold", "★ the passage"), ("lost", "★ not in the beam"), ("kept", "kept"),
        ("finished", "finished, # rank"), ("out", "finished, not in k"), ("beaten", "k results beat it"),
    )  # fmt: skip
    lines = []
    for place, (kind, what) in enumerate(entries):
        x, y = 12 + (place % 3) * 182, lowest + 14 + (place // 3) * 22
        lines.append(f'<rect class="{kind}" x="{x}" y="{y:g}" width="18" height="12"/>')
        lines.append(f'<text class="legend" x="{x + 26}" y="{y + 10:g}">{what}</text>')
    return lines


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _clean(text: str) -> str:
    return _NOT_XML.sub("�", text)


def _text(text: str) -> str:
    return escape(_clean(text))
