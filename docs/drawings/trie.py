"""The constraint index: sorted rows, and a state that is a range of them."""

from docs.drawings.sketch import Sketch

PASSAGES = (
    "ann is kind .", "ben is cold .", "ben is old .", "if someone is old then they are big .",
    "if someone is old then they are wise .",
)  # fmt: skip
STEPS = ("", "ben", "ben is", "ben is old")
"""Prefixes whose ranges are drawn."""


def ranges(passages: tuple[str, ...] = PASSAGES) -> list[tuple[str, int, int, list[str]]]:
    """(prefix, first row, end row, allowed next words) of each step, over sorted passages."""
    rows = [passage.split() for passage in sorted(passages)]
    result = []
    for prefix in STEPS:
        words = prefix.split()
        under = [number for number, row in enumerate(rows) if row[: len(words)] == words]
        following = sorted({rows[number][len(words)] for number in under})
        result.append((prefix, under[0], under[-1] + 1, following))
    return result


def draw() -> str:
    """The drawing."""
    sketch = Sketch("The passages as sorted rows; a state is the range of rows that share a prefix", 372)
    sketch.text(16, 24, "the passages, sorted", "bold")
    for number, passage in enumerate(sorted(PASSAGES)):
        sketch.text(16, 50 + 24 * number, f"{number}", "code soft")
        sketch.text(36, 50 + 24 * number, passage, "code")
    for step, (_, first, end, _) in enumerate(ranges()):
        x = 352 + 27 * step
        sketch.rect(x, 35 + 24 * first, 20, 24 * (end - first) - 4, "good" if step == 3 else "plain")
        sketch.text(x + 10, 50 + 24 * first, f"{step}", "small", "middle")
    sketch.text(16, 186, "a state is a range of rows", "bold")
    sketch.text(16, 214, "prefix", "small soft")
    sketch.text(146, 214, "rows", "small soft")
    sketch.text(206, 214, "allowed next words", "small soft")
    for step, (prefix, first, end, following) in enumerate(ranges()):
        y = 240 + 26 * step
        sketch.text(16, y, f"{step}", "small soft")
        sketch.text(36, y, prefix or "(nothing)", "code")
        sketch.text(146, y, f"{first}–{end - 1}" if end - first > 1 else f"{first}", "code")
        sketch.text(206, y, ", ".join(following), "code")
    sketch.text(16, 354, "State 3 holds one row, so the search may stop early.", "small soft")
    return sketch.svg()
