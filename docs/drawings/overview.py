"""A question, the beam over the trie of passages, the passage that it ends in, and the next hop."""

from docs.drawings.sketch import Sketch


def draw() -> str:
    """The drawing."""
    sketch = Sketch("A question, a beam over the trie of passages, the passage found, and the next hop", 458)
    sketch.box(90, 12, 280, ["Why is Ben big?"], "warm", "bold")
    sketch.arrow((230, 42), (230, 66))
    sketch.text(240, 60, "the generator writes", "small soft")
    _trie(sketch)
    sketch.arrow((84, 262), (84, 296))
    sketch.text(94, 284, "one passage is left: hop 1", "small soft")
    sketch.box(20, 298, 250, ["Ben is old."], "good", "bold")
    sketch.arrow((270, 313), (345, 313), (345, 352))
    sketch.text(276, 306, "is evidence now", "small soft")
    sketch.box(20, 354, 420, ["Why is Ben big?  +  Ben is old."], "warm", "bold")
    sketch.arrow((130, 384), (130, 412))
    sketch.text(140, 402, "the same search: hop 2", "small soft")
    sketch.box(20, 414, 300, ["If someone is old they are big."], "good", "bold")
    sketch.text(336, 434, "… until DONE", "soft")
    return sketch.svg()


def _trie(sketch: Sketch) -> None:
    """The trie of five passages; the beam follows two paths."""
    sketch.rect(12, 72, 436, 190, "lost")
    sketch.text(22, 90, "the trie of all passages", "small soft")
    for points in (((230, 122), (84, 150)), ((84, 176), (84, 204))):
        sketch.line(*points, style="goodline")
    for points in (((230, 122), (230, 150)), ((230, 122), (376, 150)), ((230, 176), (200, 204))):
        sketch.line(*points)
    sketch.line((84, 176), (122, 204), style="lines")
    sketch.line((376, 176), (376, 204), style="lines")
    for x, y, width, word, style in (
        (200, 96, 60, "start", "plain"),
        (54, 150, 60, "Ben", "good"),
        (200, 150, 60, "If", "good"),
        (346, 150, 60, "Ann", "lost"),
        (24, 204, 88, "is old", "good"),
        (118, 204, 68, "is cold", "lost"),
        (192, 204, 130, "someone is …", "lost"),
        (336, 204, 80, "is kind", "lost"),
    ):
        sketch.rect(x, y, width, 26, style)
        sketch.text(x + width / 2, y + 18, word, "small", "middle")
    sketch.text(130, 252, "green: what the beam keeps", "small soft")
