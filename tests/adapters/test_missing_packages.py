"""Adapters without their packages."""

import re
import subprocess
import sys
from pathlib import Path

from grls import adapters

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "HaystackRetriever": ("haystack", "haystack"), "LangChainRetriever": ("langchain_core", "langchain"),
    "LlamaIndexRetriever": ("llama_index", "llama-index"), "MTEBSearch": ("mteb", "mteb"),
    "MTEBTask": ("mteb", "mteb"), "PyTerrierRetriever": ("pyterrier", "pyterrier"),
}  # fmt: skip
"""Adapter -> the package that it imports, and the extra that brings it."""


def test_every_adapter_is_here() -> None:
    assert sorted(adapters.__all__) == sorted(PACKAGES)


def run(code: str) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_error_says_which_extra_to_install() -> None:
    code = f"""
import sys
from grls import adapters
from grls.errors import ConfigError
for name, (package, _) in {PACKAGES!r}.items():
    sys.modules[package] = None
    try:
        getattr(adapters, name)
    except ConfigError as error:
        print(error)
"""
    told = run(code)
    assert len(told) == len(PACKAGES)
    for line, (package, extra) in zip(told, PACKAGES.values(), strict=True):
        assert re.search(rf"pip install .grls\[{extra}\]", line)
        assert package in line


def test_the_packages_are_imported_when_an_adapter_is_used() -> None:
    names = [package for package, _ in PACKAGES.values()]
    code = "import sys\nimport grls.adapters, grls.api.searcher\n"
    assert run(f"{code}print([name for name in {names} if name in sys.modules])") == ["[]"]
