"""Adapters without their packages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from grls import adapters

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "HaystackRetriever": ("haystack", "haystack"),
    "LangChainRetriever": ("langchain_core", "langchain"),
    "LlamaIndexRetriever": ("llama_index", "llama-index"),
    "MTEBSearch": ("mteb", "mteb"),
    "PyTerrierRetriever": ("pyterrier", "pyterrier"),
}
"""Adapter -> the package that it imports, and the extra that brings it."""


def test_every_adapter_is_here() -> None:
    assert sorted(adapters.__all__) == sorted(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_error_says_which_extra_to_install(name: str) -> None:
    package, extra = PACKAGES[name]
    code = f"import sys; sys.modules[{package!r}] = None\nfrom grls.adapters import {name}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("grls.errors.ConfigError: ")
    assert re.search(rf"pip install .grls\[{extra}\]", last)
    assert package in last


def test_the_packages_are_imported_when_an_adapter_is_used() -> None:
    code = (
        "import sys\nimport grls.adapters, grls.api.searcher\n"
        f"print([name for name in {[package for package, _ in PACKAGES.values()]} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
