"""A chain until DONE beside a search in a single step."""

from docs.drawings.sketch import Sketch


def draw() -> str:
    """The drawing."""
    sketch = Sketch("A search in a single step, and a chain of hops that ends with DONE", 420)
    sketch.text(16, 24, "single step", "bold")
    sketch.box(16, 36, 130, ["question"], "warm")
    for number in range(3):
        sketch.box(240, 36 + 38 * number, 204, [f"passage {number + 1}"], "good" if number < 2 else "plain")
        sketch.arrow((146, 51), (192, 51), (192, 51 + 38 * number), (238, 51 + 38 * number))
    sketch.text(16, 112, "one search, a ranking", "small soft")
    sketch.line((16, 160), (444, 160), style="lost")
    sketch.text(16, 188, "hop by hop", "bold")
    y: float = 200
    for number, (asked, answer) in enumerate(
        (
            (["question"], "passage A"),
            (["question", "passage A"], "passage B"),
            (["question", "passage A", "passage B"], "DONE"),
        )
    ):
        bottom = sketch.box(16, y, 130, asked, "warm", "small")
        middle = (y + bottom) / 2
        sketch.arrow((146, middle), (238, middle))
        sketch.text(152, middle - 8, f"hop {number + 1}", "small soft")
        sketch.box(240, middle - 15, 204, [answer], "plain" if answer == "DONE" else "good")
        y = bottom + 14
    sketch.text(16, 404, "What was found is read by the next hop. DONE ends the chain.", "small soft")
    return sketch.svg()
