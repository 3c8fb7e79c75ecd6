"""The frame and style of the HTML pages of ``grls experiment`` and ``grls fit``.

A content security policy forbids the browser to load anything, and to run any script.
Who makes the content escapes it.
"""

from __future__ import annotations

from html import escape

STYLE = """\
:root {
  color-scheme: light dark;
  --page: #faf8f4; --ink: #1e1c19; --soft: #5f5a52; --line: #ddd7cc; --head: #f1eee7; --best: #23653a;
  --heat: #2f7fd0; --warn: #b0351a; --card: #ffffff;
  --serif: Charter, "Iowan Old Style", "Palatino Linotype", Georgia, "Liberation Serif", serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121316; --ink: #ece9e3; --soft: #a8a49c; --line: #33363d; --head: #202328; --best: #83d69e;
    --heat: #2f7fd0; --warn: #ff9c7e; --card: #1a1c20;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem clamp(0.8rem, 3vw, 2rem) 4rem; max-width: 78rem; overflow-wrap: break-word;
  background: var(--page); color: var(--ink);
  font: 15px/1.5 Inter, -apple-system, "Segoe UI", Roboto, "Noto Sans", system-ui, sans-serif;
}
.scroll { overflow-x: auto; margin: 0.8rem 0 0.2rem; border: 1px solid var(--line); border-radius: 8px; }
.scroll:focus-visible { outline: 3px solid var(--heat); }
table {
  border-collapse: separate; border-spacing: 0; font-size: 0.88rem; font-variant-numeric: tabular-nums;
  min-width: 100%;
}
th, td { padding: 0.3rem 0.7rem; border-top: 1px solid var(--line); text-align: right; white-space: nowrap; }
.note { color: var(--soft); font-size: 0.85rem; margin: 0.2rem 0 1.2rem; max-width: 60rem; }
"""


def document(title: str, style: str, body: str) -> str:
    """A whole page; ``title`` is plain text."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
