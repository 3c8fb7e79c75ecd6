"""A beam search of width two over four passages, step by step, with what is dropped."""

from typing import NamedTuple

from docs.drawings.sketch import Sketch

PASSAGES = {"ann is kind": 0.15, "ben is cold": 0.25, "ben is old": 0.4, "cat is old": 0.2}
"""Passage -> its probability given the query."""
BEAMS = 2


class Step(NamedTuple):
    """The prefixes after a step, best first: kept ones and dropped ones, with their probabilities."""

    kept: list[tuple[str, float]]
    dropped: list[tuple[str, float]]


def steps() -> list[Step]:
    """The steps of the search: a prefix has the probabilities of the passages beneath it."""
    kept, result = [""], []
    for length in (1, 2, 3):
        longer = sorted({" ".join(p.split()[:length]) for p in PASSAGES if any(_under(p, k) for k in kept)})
        scored = [(prefix, sum(v for p, v in PASSAGES.items() if _under(p, prefix))) for prefix in longer]
        scored.sort(key=lambda pair: -pair[1])
        result.append(Step(scored[:BEAMS], scored[BEAMS:]))
        kept = [prefix for prefix, _ in scored[:BEAMS]]
    return result


def _continue(sketch: Sketch, parent: float, child: float, y: float) -> None:
    """An arrow from a prefix to a longer one; one that leads to the right leaves beside the straight one."""
    aside = 14 if child > parent else 0
    start, end = parent + aside, child - aside
    sketch.arrow((start, y - 40), (start, y - 20), (end, y - 20), (end, y - 2))


def _under(passage: str, prefix: str) -> bool:
    return f"{passage} ".startswith(f"{prefix} ") or not prefix


def draw() -> str:
    """The drawing."""
    sketch = Sketch("A beam search of width two: in each step the two likeliest prefixes stay", 330)
    sketch.text(16, 24, "two beams", "bold")
    sketch.text(104, 24, "the two likeliest prefixes of each step stay", "small soft")
    above: dict[str, float] = {}
    for number, step in enumerate(steps()):
        y = 44 + 88 * number
        sketch.text(16, y + 22, f"step {number + 1}", "small soft")
        middles: dict[str, float] = {}
        for place, (prefix, probability) in enumerate(step.kept + step.dropped):
            x = 70 + 130 * place
            sketch.box(
                x, y, 120, [prefix, f"{probability:.2f}"], "good" if place < BEAMS else "lost", "small"
            )
            middles[prefix] = x + 60
            parent = above.get(prefix.rpartition(" ")[0])
            if parent is not None:
                _continue(sketch, parent, x + 60, y)
        above = middles
    sketch.text(16, 318, "Dashed: dropped. Such prefixes are the frontier of the search.", "small soft")
    return sketch.svg()
