"""Notebooks as pages, and the command that runs them anew: ``python -m docs.site.notebooks``.

A notebook is run in an empty folder, without the network. Its outputs are stored, so the page shows them.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 600
"""The longest time of a cell."""

SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # threads that wait by spinning would slow a busy machine
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""The environment of a notebook: this checkout, no network, one thread."""


def pages() -> dict[str, str]:
    """Place in the site -> the notebook as Markdown."""
    return {f"notebooks/{file.stem}.md": _text(file) for file in sorted(FOLDER.glob("*.ipynb"))}


def run(file: Path) -> Any:
    """The notebook with the outputs of a new run.

    Raises:
        CellExecutionError: A cell fails.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        where = {"metadata": {"path": place}}
        client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=where)
        client.execute(env={**os.environ, **SETTINGS})
    return notebook


def printed(cell: Any) -> str:
    """What a cell printed or returned, as text; warnings are left out."""
    texts = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream" and output["name"] == "stdout":
            texts.append(_joined(output["text"]))
        elif output["output_type"] == "execute_result":
            texts.append(_joined(output["data"]["text/plain"]) + "\n")
    return "".join(texts)


def _text(file: Path) -> str:
    """The notebook as Markdown, with a link to the file."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = _joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if text := printed(cell).rstrip():
            parts.append(f"```text\n{text}\n```")
    head, _, rest = "\n\n".join(parts).partition("\n")
    return f"{head}\n\n[This page as a notebook]({file.name})\n{rest}\n"


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def main() -> None:
    """Run all notebooks, or those that are named, and store their outputs."""
    import nbformat

    for file in sorted(FOLDER.glob("*.ipynb")):
        if sys.argv[1:] and file.stem not in sys.argv[1:]:
            continue
        notebook = run(file)
        for cell in notebook.cells:
            cell.pop("id", None)
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        notebook.metadata = {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        }
        notebook.nbformat_minor = 4
        nbformat.write(notebook, file)
        print(f"docs/notebooks/{file.name}")


if __name__ == "__main__":
    main()
