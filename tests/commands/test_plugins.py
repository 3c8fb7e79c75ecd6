"""Modules outside the package: what they register, every command knows; what is wrong with them, it says."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from failing import fails, raises
from fixture_types import Capsys, Patch
from small_data import small_retriever, write_small

from grls.cli import main
from grls.errors import ConfigError
from grls.index.backends import BACKENDS, check_backend
from grls.io import recipes
from grls.retrieve.registry import KINDS, Opening, load_retriever

KIND = """
from toy_kind import ToyRetriever
from grls.retrieve.registry import register

class Words(ToyRetriever):
    pass

class Half:
    @classmethod
    def open(cls, folder, spec, how):
        return cls()

class Idle(ToyRetriever):
    @classmethod
    def build(cls, model, corpus, how):
        return cls

for name in (Words, Half, Idle):
    register(name.__name__.lower(), f"my_plugin:{name.__name__}")
"""
BACKEND = """
from grls.index.backends import FlatIndex, register_backend

class Plain(FlatIndex):
    backend = "plain"

register_backend(Plain)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    """A data set, and a module on the path; what it registers is gone afterwards."""
    write_small(tmp_path / "data")
    monkeypatch.syspath_prepend(tmp_path)
    kinds, backends = dict(KINDS), dict(BACKENDS)
    yield tmp_path
    for now, before in ((KINDS, kinds), (BACKENDS, backends)):
        for added in set(now) - set(before):
            del now[added]
    sys.modules.pop("my_plugin", None)


def plugin(place: Path, monkeypatch: Patch, text: str) -> None:
    (place / "my_plugin.py").write_text(text)
    monkeypatch.setenv(recipes.VARIABLE, " my_plugin ,")


def index(place: Path, kind: str) -> list[str]:
    return ["index", "none", f"--kind={kind}", f"--corpus={place / 'data'}", f"--output={place / 'r'}"]


def test_a_kind_of_a_plugin_is_built_and_opened_by_commands(
    place: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    plugin(place, monkeypatch, KIND)
    (place / "r").mkdir()
    (place / "r" / "grls.json").write_text('{"kind": "toy"}')
    assert "GRLS_PLUGINS" in fails(
        capsys, "retrieve", place / "r", f"--data={place / 'data'}", f"--output={place / 'run'}"
    )
    assert main(index(place, "words")) == 0
    (place / "r" / "grls.json").write_text('{"kind": "words"}')
    assert main(["retrieve", f"{place / 'r'}", f"--data={place / 'data'}", f"--output={place / 'run'}"]) == 0
    assert (place / "run.jsonl").stat().st_size


def test_a_plugin_is_imported_only_for_a_name_that_is_unknown(place: Path, monkeypatch: Patch) -> None:
    plugin(place, monkeypatch, BACKEND)
    check_backend("flat")
    assert "my_plugin" not in sys.modules
    check_backend("plain")
    assert "plain" in BACKENDS
    raises(ConfigError, "expected one of array, marisa, flat, plain, or one that", check_backend, "other")


def test_an_index_is_built_and_opened_by_the_backend_of_a_plugin(
    place: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    plugin(place, monkeypatch, BACKEND)
    small = small_retriever(place / "data")
    small.model.save_pretrained(place / "m")
    small.codec.tokenizer.save_pretrained(place / "m")
    given = ["index", f"{place / 'm'}", f"--corpus={place / 'data'}", f"--output={place / 'r'}"]
    line = fails(capsys, *given, "--index.backend=other")
    assert "unknown index backend 'other'; expected one of array, marisa, flat, plain" in line
    assert main([*given, "--index.backend=plain", "--device=cpu"]) == 0
    del BACKENDS["plain"], sys.modules["my_plugin"]  # as in another process
    opened = load_retriever(place / "r", Opening("cpu"))
    asked = ["is the heron calm ?"]
    assert opened.retrieve(asked, 3) == small.retrieve(asked, 3)


def test_a_plugin_that_cannot_be_imported_is_named(place: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv(recipes.VARIABLE, "nowhere_at_all")
    line = fails(capsys, *index(place, "words"))
    assert "GRLS_PLUGINS: the module 'nowhere_at_all' cannot be imported" in line
    assert "PYTHONPATH" in line


def test_an_installed_package_names_its_module_as_an_entry_point(
    place: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "my_plugin.py").write_text(BACKEND)
    points = [EntryPoint("a", "nowhere_at_all", recipes.GROUP), EntryPoint("b", "my_plugin", recipes.GROUP)]
    monkeypatch.setattr(recipes, "entry_points", lambda group: points if group == recipes.GROUP else [])
    check_backend("plain")
    assert "plain" in BACKENDS
    assert "the plugin nowhere_at_all cannot be imported" in caplog.text


def test_a_class_that_builds_no_folder_is_said_to(place: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """It ended with exit code 0, and there was no folder."""
    plugin(place, monkeypatch, KIND)
    line = fails(capsys, *index(place, "idle"))
    assert "the kind 'idle' (my_plugin:Idle) built no folder" in line
    assert f"its `build` writes {place / 'r'}" in line


def test_a_class_that_lacks_a_part_is_refused_when_it_is_opened(place: Path, monkeypatch: Patch) -> None:
    plugin(place, monkeypatch, KIND)
    (place / "h").mkdir()
    (place / "h" / "grls.json").write_text('{"kind": "half"}')
    with pytest.raises(ConfigError, match="opened a Half without kind, corpus, describe, fingerprint, retr"):
        load_retriever(place / "h")
