"""Pictures as SVG: curves, histograms, and a proof as a column of boxes in retrieval order, with arrows.

One column stays readable on a phone and shows the order, which the checks judge. Straight arrows join
neighbours, arcs at the left join other boxes. A fault is a broken frame with its reason in words, red for a
missing or wrong statement, blue for a statement that is left over (the colours of the paper's figures). If no
arrow leads to a step, a broken line with a cross takes its place. The module does not know of pages.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.io.ending import needing
from grls.report.blocks import INK, NONE, Picture
from grls.report.measure import MeasuredGroup
from grls.report.proofs import Proof, ProofFault
from grls.report.tables import steps

FAULT = "#d8504a"  # missing or wrong
LEFT = "#2f7fd0"  # left over
GIVEN = "#3b8c5a"  # the start and the goal
_BOX = 320  # px
_CHARACTERS = 42  # that fit into a box at 13 px
_LONGEST = 240  # characters of a passage that are shown
_LINE = 17
_PAD = 8
_GAP = 24
_LANE = 11


class _Item(NamedTuple):
    """A box: its place and its lines."""

    top: int
    height: int
    lines: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]  # (line, colour)
    end: bool  # the start or the goal

    @property
    def middle(self) -> float:
        return self.top + self.height / 2

    @property
    def bottom(self) -> int:
        return self.top + self.height


def draw_proof(proof: Proof, name: str) -> str:
    """The drawing.

    Args:
        proof: The proof.
        name: Prefix of the ids inside, unique on the page.
    """
    items: list[_Item] = []

    def add(texts: Sequence[str], faults: Sequence[ProofFault], end: bool = False) -> None:
        top = items[-1].bottom + _GAP if items else 8
        lines = tuple(line for text in texts for line in _wrapped(text))
        wrong = tuple((line, LEFT if f.left else FAULT) for f in faults for line in _wrapped(f"✗ {f.reason}"))
        height = _LINE * (len(lines) + len(wrong)) + 2 * _PAD
        items.append(_Item(top, height, lines, wrong, end))

    add([f"Start: {fact}" for fact in proof.start], [], end=True)
    for n, step in enumerate(proof.steps, 1):
        add([f"{n}. {step.text}"], step.faults)
    add([f"Goal: {proof.goal}"], proof.faults, end=True)

    # Arrows between boxes: box 0 is the start, the last one the goal.
    links = [(0, n + 1) for n in proof.given] + [(i + 1, j + 1) for i, j in proof.edges]
    if proof.steps and not proof.errors.end_node:
        links.append((len(proof.steps), len(proof.steps) + 1))
    arcs = [link for link in links if link[1] - link[0] > 1]
    lanes = _lanes(arcs)
    left = 8 + _LANE * (1 + max(lanes.values())) if lanes else 8
    width, height = left + _BOX + 8, items[-1].bottom + 8
    tip = f"{escape(name)}-tip"
    parts = [
        f'<defs><marker id="{tip}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
    ]
    for i, j in arcs:
        top, bottom, lane = items[i].middle, items[j].middle, left - _LANE * (lanes[i, j] + 1)
        parts.append(
            f'<path d="M{left} {top:g}H{lane + 5:g}Q{lane:g} {top:g} {lane:g} {top + 5:g}V{bottom - 5:g}'
            f'Q{lane:g} {bottom:g} {lane + 5:g} {bottom:g}H{left - 1}" stroke="{INK}" stroke-width="1.5" '
            f'fill="none" marker-end="url(#{tip})"/>'
        )
    x = left + _BOX / 2
    for n, (item, after) in enumerate(pairwise(items)):
        if (n, n + 1) in links:
            parts.append(
                f'<path d="M{x:g} {item.bottom}V{after.top - 2}" stroke="{INK}" stroke-width="1.5" '
                f'fill="none" marker-end="url(#{tip})"/>'
            )
        elif any(colour == FAULT for _, colour in after.reasons) and all(j != n + 1 for _, j in links):
            middle = (item.bottom + after.top) / 2  # a box that needs an arrow has none
            parts.append(
                f'<path d="M{x:g} {item.bottom}V{after.top}" stroke="{FAULT}" stroke-width="1.5" '
                'stroke-dasharray="3 3"/>'
                f'<path d="M{x - 5:g} {middle - 5:g}l10 10m0 -10l-10 10" stroke="{FAULT}" stroke-width="2"/>'
            )
    parts += [_box(item, left) for item in items]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">' + "".join(parts) + "</svg>"
    )


def describe_proof(proof: Proof) -> str:
    """The drawing in words."""
    said = [f"Start: {' '.join(proof.start)}"]
    for n, step in enumerate(proof.steps, 1):
        sources = [str(i + 1) for i, j in proof.edges if j == n - 1]
        led = f" (from {', '.join(sources)})" if sources else ""
        wrong = "".join(f" Wrong: {fault.reason}." for fault in step.faults)
        said.append(f"Step {n}: {step.text}{led}{wrong}")
    said.append(f"Goal: {proof.goal}" + "".join(f" Wrong: {fault.reason}." for fault in proof.faults))
    return " ".join(said)


def _lanes(arcs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Arc -> lane, counted from the boxes outward; arcs that overlap have different lanes."""
    lanes: dict[tuple[int, int], int] = {}
    for arc in sorted(arcs, key=lambda a: (a[1] - a[0], a)):
        taken = {lane for other, lane in lanes.items() if other[0] <= arc[1] and arc[0] <= other[1]}
        lanes[arc] = next(lane for lane in range(len(arcs)) if lane not in taken)
    return lanes


def _wrapped(text: str) -> list[str]:
    short = textwrap.shorten(text, _LONGEST, placeholder=" …")
    return textwrap.wrap(short.replace(" .", "\u00a0."), _CHARACTERS) or [""]  # no full stop on its own line


def _box(item: _Item, left: int) -> str:
    colours = {colour for _, colour in item.reasons}
    colour = FAULT if FAULT in colours else LEFT if colours else GIVEN if item.end else INK
    dash = ' stroke-dasharray="5 3"' if item.reasons else ""
    y = item.top + _PAD + 12
    lines = [
        f'<text x="{left + 10}" y="{y + n * _LINE}" fill="{INK}">{escape(line)}</text>'
        for n, line in enumerate(item.lines)
    ]
    lines += [
        f'<text x="{left + 10}" y="{y + n * _LINE}" fill="{wrong}" font-weight="bold">{escape(line)}</text>'
        for n, (line, wrong) in enumerate(item.reasons, len(item.lines))
    ]
    return (
        f'<rect x="{left}" y="{item.top}" width="{_BOX}" height="{item.height}" rx="{14 if item.end else 4}" '
        f'fill="{colour}" fill-opacity="0.07" stroke="{colour}" stroke-width="1.5"{dash}/>' + "".join(lines)
    )


# Curves and histograms as SVG, by matplotlib.
#
# The pictures have no background and no date. Their ids are the same on every run and differ between
# pictures, so that one page can hold several. Text stays text, names are never read as formulas, dark parts
# have the colour ``INK``. Lines differ by colour, dash and marker.


with needing("report", "a report, for its curves,"):
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

COLOURS = ("#2f7fd0", "#d9730d", "#1f9d6b", "#b055c6", "#d8504a", "#8c7a2b", "#1a9aa8", "#7a7f87")
"""Line colours, with a contrast of about 3 or more on white and on near-black."""

_DASHES = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX*"
_DEPTH = 20  # deepest cut-off of the curves
_WIDTH = 5.4  # inches
_LABEL = 58  # characters of a line of the legend that fit into this width
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


def recall_curves(group: MeasuredGroup) -> list[Picture]:
    """Recall at every cut-off, all runs in one picture; a curve ends where its lists end."""
    runs = [run for run in group.runs if run.depth]
    if not runs:
        return []
    curves = []
    for run in runs:
        ks = range(1, min(_DEPTH, run.depth) + 1)
        curves.append([*sequence_recall(run.retrieved, group.gold, ks).values()])
    with matplotlib.rc_context(_STYLE):
        names = [
            run.label if steps(run) == NONE or steps(run) in run.label else f"{run.label}, {steps(run)}"
            for run in runs
        ]
        labels = ["\n".join(textwrap.wrap(name, _LABEL)) for name in names]
        lines = sum(label.count("\n") + 1 for label in labels)
        figure = Figure((_WIDTH, 2.9 + 0.2 * lines), layout="constrained")
        axes = figure.add_subplot()
        for n, (label, curve) in enumerate(zip(labels, curves, strict=True)):
            look: dict[str, Any] = {  # no two of the first 32 lines are the same
                "color": COLOURS[n % len(COLOURS)],
                "linestyle": _DASHES[n // len(COLOURS) % len(_DASHES)],
                "marker": _MARKERS[n % len(_MARKERS)],
            }
            axes.plot(range(1, len(curve) + 1), [100 * r for r in curve], label=label, **look)
        axes.set_xlabel("k")
        axes.set_ylabel("recall@k (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#8a8f98", alpha=0.35, linewidth=0.6)
        figure.legend(loc="outside lower left", frameon=False, ncols=1)
        name = f"{group.group.name}-recall"
        svg = _svg(figure, name)
    ends = "; ".join(
        f"{run.label}: {100 * c[0]:.1f} at 1, {100 * c[-1]:.1f} at {len(c)}"
        for run, c in zip(runs, curves, strict=True)
    )
    return [Picture(name, "Recall@k by k, every run", svg, f"Curves of recall (%) by cut-off. {ends}.")]


def length_histograms(group: MeasuredGroup) -> list[Picture]:
    """Lengths of retrieved and of gold chains, one picture for each dynamic run."""
    dynamic = [run for run in group.runs if run.chains is not None and run.entry.steps == "dynamic"]
    shown = []
    for number, run in enumerate(dynamic, 1):
        predicted, gold = Counter(map(len, run.chains or [])), Counter(map(len, group.gold))
        lengths = range(max(*predicted, *gold, 1) + 1)
        with matplotlib.rc_context(_STYLE):
            figure = Figure((_WIDTH, 2.9), layout="constrained")
            axes = figure.add_subplot()
            places = [n - 0.2 for n in lengths]
            axes.bar(places, [predicted[n] for n in lengths], 0.4, label="retrieved", color=COLOURS[0])
            places = [n + 0.2 for n in lengths]
            look: dict[str, Any] = {"color": "none", "edgecolor": COLOURS[1], "hatch": "////"}
            axes.bar(places, [gold[n] for n in lengths], 0.4, label="gold", **look)
            axes.set_xlabel("passages in the chain")
            axes.set_ylabel("queries")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
            figure.legend(loc="outside lower left", frameon=False, ncols=2)
            name = f"{group.group.name}-lengths-{number}"
            svg = _svg(figure, name)
        alt = f"Retrieved: {_said(predicted)}. Gold: {_said(gold)}."
        caption = f"Lengths of chains: {run.label}"
        shown.append(Picture(name, caption, svg, f"Histogram of chain lengths, queries by length. {alt}"))
    return shown


def _said(counts: Counter[int]) -> str:
    return ", ".join(f"{counts[n]} of {n}" for n in sorted(counts))


def _svg(figure: Figure, name: str) -> str:
    """The bare ``<svg>`` element of a figure, its ids prefixed with ``name``."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "grls"}):
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL
    )  # inline, it would style the whole page
    slug = re.sub(r"[^A-Za-z0-9_-]", lambda sign: f"_{ord(sign[0]):x}_", name)
    return re.sub(r'(\bid="|url\(#|href="#)', lambda match: f"{match[0]}{slug}-", text)
