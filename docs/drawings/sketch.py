"""Boxes, texts and arrows as SVG that is readable in light and dark, and on a phone.

Drawings are 460 units wide and their letters 13 or 14 high, so on a screen of 400 pixels they are 10 high.
Colours follow the browser's colour scheme; the picture has a background of its own.
"""

from html import escape

WIDTH = 460
LINE = 18
SIZE = 14
_STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2933; }
.small { font-size: 13px; } .soft { fill: #52606d; } .bold { font-weight: 600; }
.code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 13px; }
.ground { fill: #ffffff; } .lines { fill: none; stroke: #7b8794; stroke-width: 1.4; }
.plain { fill: #f2f5f7; stroke: #9fb0bd; } .good { fill: #d7f2e5; stroke: #20805a; }
.warm { fill: #fdecc8; stroke: #b7791f; } .lost { fill: none; stroke: #9fb0bd; stroke-dasharray: 4 3; }
.goodline { fill: none; stroke: #20805a; stroke-width: 2.4; } .tip { fill: #7b8794; }
.bar { fill: #5a9fd4; } .faint { fill: #c5d0d8; }
@media (prefers-color-scheme: dark) {
text { fill: #e4e9ee; } .soft { fill: #a9b4be; } .ground { fill: #1e2129; }
.lines { stroke: #8794a1; } .tip { fill: #8794a1; }
.plain { fill: #2b303b; stroke: #5d6b78; } .good { fill: #17402f; stroke: #4fbf8d; }
.warm { fill: #4a3813; stroke: #d9a441; } .lost { stroke: #5d6b78; }
.goodline { stroke: #4fbf8d; } .bar { fill: #5a9fd4; } .faint { fill: #4a5561; }
}
"""


class Sketch:
    """A drawing.

    Args:
        title: What it shows, for those who cannot see it.
        height: Its height.
    """

    def __init__(self, title: str, height: int):
        self.title, self.height = title, height
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        """A line of text; ``y`` is its base line."""
        named = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{named}>{escape(words)}</text>')

    def box(
        self, x: float, y: float, width: float, lines: list[str], style: str = "plain", text: str = ""
    ) -> float:
        """A box around centred lines.

        Returns:
            Where it ends at the bottom.
        """
        height = LINE * len(lines) + 12
        self.rect(x, y, width, height, style)
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + 6 + LINE * number + SIZE - 1, line, text, "middle")
        return y + height

    def rect(self, x: float, y: float, width: float, height: float, style: str) -> None:
        """A rectangle with round corners."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{style}"/>'
        )

    def line(self, *points: tuple[float, float], style: str = "lines") -> None:
        """A line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="{style}"/>')

    def arrow(self, *points: tuple[float, float], style: str = "lines") -> None:
        """A line whose last part, which is upright or level, ends in a tip."""
        (before_x, before_y), (x, y) = points[-2:]
        self.line(*points, style=style)
        dx, dy = (x > before_x) - (x < before_x), (y > before_y) - (y < before_y)
        corners = [
            (x, y),
            (x - 8 * dx + 4 * dy, y - 8 * dy + 4 * dx),
            (x - 8 * dx - 4 * dy, y - 8 * dy - 4 * dx),
        ]
        path = " ".join(f"{a:g},{b:g}" for a, b in corners)
        self.parts.append(f'<polygon points="{path}" class="tip"/>')

    def svg(self) -> str:
        """The drawing as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img" aria-label="{escape(self.title)}">'
        )
        ground = f'<rect width="{WIDTH}" height="{self.height}" rx="8" class="ground"/>'
        body = "\n".join(
            [f"<title>{escape(self.title)}</title>", f"<style>{_STYLE}</style>", ground, *self.parts]
        )
        return f"{head}\n{body}\n</svg>\n"
