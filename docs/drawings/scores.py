"""Both score modes at one step, and where early stop ends a beam."""

import math

from docs.drawings.sketch import Sketch

LOGITS = {"ben": 2.0, "ann": 1.2, "the": 2.6, "a": 1.9, "if": 0.4}
ALLOWED = ("ann", "ben", "if")


def probabilities(words: tuple[str, ...]) -> dict[str, float]:
    """The softmax over some words."""
    total = sum(math.exp(LOGITS[word]) for word in words)
    return {word: math.exp(LOGITS[word]) / total for word in words}


def draw() -> str:
    """The drawing."""
    sketch = Sketch(
        "The probabilities of the next word in both score modes, and a passage with early stop", 432
    )
    _bars(sketch, 16, "full", "over the vocabulary", tuple(sorted(LOGITS)))
    _bars(sketch, 246, "renormalized", "over what is allowed", ALLOWED)
    sketch.text(16, 236, "early stop", "bold")
    words = ("ben", "is", "old", ".")
    for number, word in enumerate(words):
        x = 16 + 84 * number
        style = "good" if number < 3 else "lost"
        sketch.rect(x, 270, 66, 30, style)
        sketch.text(x + 33, 290, word, "", "middle")
        if number:
            sketch.line((x - 18, 285), (x, 285))
    sketch.line((259, 254), (259, 316), style="goodline")
    sketch.text(266, 262, "one passage is left", "small soft")
    for number, (first, second) in enumerate(
        (
            ("renormalized:", "a forced token has probability one."),
            ("", "Stopping here changes no score."),
            ("full:", "the rest would still cost probability."),
            ("", "Stopping is off, unless you ask for it."),
        )
    ):
        y = 342 + 24 * number
        sketch.text(16, y, first, "small bold")
        sketch.text(128, y, second, "small")
    return sketch.svg()


def _bars(sketch: Sketch, x: int, name: str, over: str, words: tuple[str, ...]) -> None:
    """One bar for each word; what is not allowed is faint."""
    sketch.text(x, 24, name, "bold")
    sketch.text(x, 44, over, "small soft")
    for number, word in enumerate(sorted(LOGITS)):
        y = 58 + 30 * number
        share = probabilities(words).get(word, 0.0)
        sketch.text(x, y + 15, word, "code")
        if share:
            sketch.rect(x + 40, y + 2, 130 * share, 18, "bar" if word in ALLOWED else "faint")
        sketch.text(x + 46 + 130 * share, y + 15, f"{share:.2f}" if share else "not allowed", "small soft")
