"""Writes all drawings: ``python -m docs.drawings``."""

from pathlib import Path

from docs.drawings import architecture, beam, chains, overview, scores, trie

DRAWINGS = {
    "overview": overview.draw,
    "trie": trie.draw,
    "scores": scores.draw,
    "beam": beam.draw,
    "chains": chains.draw,
    "architecture": architecture.draw,
}
"""Name of the file -> the function that draws it."""

if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "pictures"
    folder.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(f"docs/pictures/{name}.svg")
