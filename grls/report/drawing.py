"""A proof drawn as SVG: one column of boxes in retrieval order, arrows from premises to their uses.

One column stays readable on a phone and shows the order, which the checks judge. Straight arrows join
neighbours, arcs at the left join other boxes. A fault is a broken frame with its reason in words, red for a
missing or wrong statement, blue for a statement that is left over (the colours of the paper's figures). If no
arrow leads to a step, a broken line with a cross takes its place. The module does not know of pages.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from grls.report.blocks import INK
from grls.report.proofs import Proof, ProofFault, ProofStep

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
    items = _items(proof)
    links = _links(proof)
    arcs = [link for link in links if link[1] - link[0] > 1]
    lanes = _lanes(arcs)
    left = 8 + _LANE * (1 + max(lanes.values())) if lanes else 8
    width, height = left + _BOX + 8, items[-1].bottom + 8
    parts = [_markers(name)]
    parts += [_arc(items, link, left - _LANE * (lanes[link] + 1), left, name) for link in arcs]
    for n in range(len(items) - 1):
        x = left + _BOX / 2
        if (n, n + 1) in links:
            parts.append(_arrow(x, items[n].bottom, items[n + 1].top - 2, name))
        elif _unled(items, links, n + 1):
            parts.append(_broken(x, items[n].bottom, items[n + 1].top))
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
        said.append(f"Step {n}: {step.text}{led}{_wrong(step)}")
    said.append(f"Goal: {proof.goal}" + "".join(f" Wrong: {fault.reason}." for fault in proof.faults))
    return " ".join(said)


def _wrong(step: ProofStep) -> str:
    return "".join(f" Wrong: {fault.reason}." for fault in step.faults)


def _items(proof: Proof) -> list[_Item]:
    items: list[_Item] = []

    def add(texts: Sequence[str], faults: Sequence[ProofFault], end: bool = False) -> None:
        top = items[-1].bottom + _GAP if items else 8
        lines = tuple(line for text in texts for line in _wrapped(text))
        wrong = tuple((line, _colour(f)) for f in faults for line in _wrapped(f"✗ {f.reason}"))
        height = _LINE * (len(lines) + len(wrong)) + 2 * _PAD
        items.append(_Item(top, height, lines, wrong, end))

    add([f"Start: {fact}" for fact in proof.start], [], end=True)
    for n, step in enumerate(proof.steps, 1):
        add([f"{n}. {step.text}"], step.faults)
    add([f"Goal: {proof.goal}"], proof.faults, end=True)
    return items


def _colour(fault: ProofFault) -> str:
    return LEFT if fault.left else FAULT


def _links(proof: Proof) -> list[tuple[int, int]]:
    """Arrows between boxes: box 0 is the start, the last one the goal."""
    links = [(0, n + 1) for n in proof.given]
    links += [(i + 1, j + 1) for i, j in proof.edges]
    if proof.steps and not proof.errors.end_node:
        links.append((len(proof.steps), len(proof.steps) + 1))
    return links


def _unled(items: Sequence[_Item], links: Sequence[tuple[int, int]], n: int) -> bool:
    """Whether a box that needs an arrow has none."""
    wrong = any(colour == FAULT for _, colour in items[n].reasons)
    return wrong and all(j != n for _, j in links)


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


def _markers(name: str) -> str:
    return (
        f'<defs><marker id="{escape(name)}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
    )


def _arrow(x: float, top: float, bottom: float, name: str) -> str:
    return (
        f'<path d="M{x:g} {top}V{bottom}" stroke="{INK}" stroke-width="1.5" fill="none" '
        f'marker-end="url(#{escape(name)}-tip)"/>'
    )


def _arc(items: Sequence[_Item], link: tuple[int, int], lane: float, left: int, name: str) -> str:
    top, bottom = items[link[0]].middle, items[link[1]].middle
    return (
        f'<path d="M{left} {top:g}H{lane + 5:g}Q{lane:g} {top:g} {lane:g} {top + 5:g}V{bottom - 5:g}'
        f'Q{lane:g} {bottom:g} {lane + 5:g} {bottom:g}H{left - 1}" stroke="{INK}" stroke-width="1.5" '
        f'fill="none" marker-end="url(#{escape(name)}-tip)"/>'
    )


def _broken(x: float, top: float, bottom: float) -> str:
    middle = (top + bottom) / 2
    return (
        f'<path d="M{x:g} {top}V{bottom}" stroke="{FAULT}" stroke-width="1.5" stroke-dasharray="3 3"/>'
        f'<path d="M{x - 5:g} {middle - 5:g}l10 10m0 -10l-10 10" stroke="{FAULT}" stroke-width="2"/>'
    )


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
