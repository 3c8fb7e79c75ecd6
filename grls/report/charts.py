"""Curves and histograms as SVG, by matplotlib.

The pictures have no background and no date. Their ids are the same on every run and differ between pictures,
so that one page can hold several. Text stays text, names are never read as formulas, dark parts have the
colour ``INK``. Lines differ by colour, dash and marker.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.io.extras import needing
from grls.report.blocks import INK, NONE, Picture
from grls.report.measure import Measured, MeasuredGroup
from grls.report.rows import steps

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
    return [_recall_picture(group, runs)] if runs else []


def length_histograms(group: MeasuredGroup) -> list[Picture]:
    """Lengths of retrieved and of gold chains, one picture for each dynamic run."""
    dynamic = [run for run in group.runs if run.chains is not None and run.entry.steps == "dynamic"]
    return [_length_picture(group, run, n) for n, run in enumerate(dynamic, 1)]


def _recall_picture(group: MeasuredGroup, runs: Sequence[Measured]) -> Picture:
    curves = [_curve(group, run) for run in runs]
    with matplotlib.rc_context(_STYLE):
        labels = ["\n".join(textwrap.wrap(_named(run), _LABEL)) for run in runs]
        lines = sum(label.count("\n") + 1 for label in labels)
        figure = Figure((_WIDTH, 2.9 + 0.2 * lines), layout="constrained")
        axes = figure.add_subplot()
        for n, (label, curve) in enumerate(zip(labels, curves, strict=True)):
            axes.plot(range(1, len(curve) + 1), [100 * r for r in curve], label=label, **_line(n))
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
    return Picture(name, "Recall@k by k, every run", svg, f"Curves of recall (%) by cut-off. {ends}.")


def _named(run: Measured) -> str:
    """The name of a run in the legend, with its steps if they are known."""
    complete = steps(run) == NONE or steps(run) in run.label
    return run.label if complete else f"{run.label}, {steps(run)}"


def _curve(group: MeasuredGroup, run: Measured) -> list[float]:
    ks = range(1, min(_DEPTH, run.depth) + 1)
    values = sequence_recall(run.retrieved, group.gold, ks)
    return [values[f"recall@{k}"] for k in ks]


def _length_picture(group: MeasuredGroup, run: Measured, number: int) -> Picture:
    predicted, gold = Counter(map(len, run.chains or [])), Counter(map(len, group.gold))
    longest = max(*predicted, *gold, 1)
    lengths = range(longest + 1)
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
    return Picture(
        name,
        f"Lengths of chains: {run.label}",
        svg,
        f"Histogram of chain lengths, queries by length. Retrieved: {_said(predicted)}. Gold: {_said(gold)}.",
    )


def _said(counts: Counter[int]) -> str:
    return ", ".join(f"{counts[n]} of {n}" for n in sorted(counts))


def _line(n: int) -> dict[str, Any]:
    """The look of line n: no two of the first 32 are the same."""
    return {
        "color": COLOURS[n % len(COLOURS)],
        "linestyle": _DASHES[n // len(COLOURS) % len(_DASHES)],
        "marker": _MARKERS[n % len(_MARKERS)],
    }


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
