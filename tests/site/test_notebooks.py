"""The notebooks run from an empty folder, without the network, and print what is stored in them."""

import json
import re
from pathlib import Path

import pytest

from docs.site import notebooks

NUMBER = re.compile(r"\d+\.\d+")


@pytest.mark.parametrize("file", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path) -> None:
    """Figures with a fraction may differ from processor to processor."""
    pytest.importorskip("nbclient", reason='needs the extra docs: pip install "grls[docs]"')
    pytest.importorskip("ipykernel", reason='needs the extra docs: pip install "grls[docs]"')
    stored = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert [texts(cell) for cell in notebooks.run(file).cells] == [texts(cell) for cell in stored]


def texts(cell: dict[str, object]) -> str:
    return NUMBER.sub("#", notebooks.printed(cell))
