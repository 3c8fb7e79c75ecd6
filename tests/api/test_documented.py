"""docs/python.md names every keyword of every public call; its code and the README's ten lines run."""

import re
from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Capsys, Patch

import grls
import grls.fitting.models
from grls.errors import ConfigError
from grls.fitting.options import FitOptions
from grls.index.options import IndexOptions, LimitOptions
from grls.retrieve.fusion.retriever import Fusion
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hub_names import CardOptions
from grls.retrieve.hybrid.options import PriorOptions
from grls.retrieve.rescored.options import Rereading

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
CALLS: dict[str, tuple[Callable[..., Any], tuple[type, ...]]] = {
    "grls.fit": (grls.fit, (FitOptions,)), "grls.load": (grls.load, ()), "grls.BM25": (grls.BM25, ()),
    "grls.documents": (grls.documents, ()), "grls.identify": (grls.identify, ()),
    "grls.BiEncoder": (grls.BiEncoder, ()), "BiEncoder.fit": (grls.BiEncoder.fit, ()),
    "BiEncoder.index": (grls.BiEncoder.index, ()), "grls.Generator": (grls.Generator, ()),
    "Generator.fit": (grls.Generator.fit, ()),
    "Generator.index": (grls.Generator.index, (IndexOptions, LimitOptions)),
    "grls.fuse": (grls.fuse, (Fusion,)), "grls.experiment": (grls.experiment, ()),
    "search": (grls.Searcher.search, ()), "asearch": (grls.Searcher.asearch, ()),
    "stream": (grls.Searcher.stream, ()), "with_priors": (grls.Searcher.with_priors, (PriorOptions,)),
    "hops": (grls.Searcher.hops, (HopOptions,)), "rescored": (grls.Searcher.rescored, (Rereading,)),
    "tune": (grls.Searcher.tune, ()), "updated": (grls.Searcher.updated, ()),
    "explain": (grls.Searcher.explain, ()), "save": (grls.Searcher.save, ()),
    "push_to_hub": (grls.Searcher.push_to_hub, (CardOptions,)),
    "grls.check_folder": (grls.check_folder, ()),
}  # fmt: skip


def rows() -> dict[str, set[str]]:
    """Call -> the words in code of its row of the table."""
    table: dict[str, set[str]] = {}
    lines = PAGE.partition("| call | keywords |\n")[2].partition("\n\n")[0]
    for call, keywords in re.findall(r"^\| (`[^|]*) \|([^|]*)\|$", lines, re.MULTILINE):
        words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", call + keywords))))
        for name in re.findall(r"`([\w.]+)[(`]", call):
            table[name] = words
    return table


@pytest.mark.parametrize("name", CALLS)
def test_every_keyword_is_in_its_row(name: str) -> None:
    call, options = CALLS[name]
    known = [one for one in signature(call).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    keywords = {one.name for one in known} | {field.name for cls in options for field in fields(cls)}
    assert keywords - {"self", "queries" if "search" in name else "self"} <= rows()[name]


def test_every_public_call_has_a_row() -> None:
    values = {"Chain", "Corpus", "FitResult", "Hit", "Passage", "Query", "Searcher"}
    assert {f"grls.{name}" for name in set(grls.__all__) - values} <= CALLS.keys()
    methods = {name for name in dir(grls.Searcher) if not name.startswith("_")}
    inner = {"composed", "corpus", "describe", "folder", "on_disk", "opened", "retriever"}
    assert methods - inner <= CALLS.keys() == rows().keys()
    assert all(f"grls.{name}" in PAGE for name in values - {"Searcher"})


ROOT = Path(__file__).parents[2]


def test_the_page_runs(kinds: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "runs").mkdir()
    for name, kind in (("generator", "generative"), ("dense", "dense")):
        (tmp_path / "runs" / name).symlink_to(kinds / kind)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?<!no-run -->\n\n)^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec("\n".join(blocks), names)
    assert len(blocks) >= 7
    assert names["again"].search("is the otter calm ?")  # type: ignore[attr-defined]


def no_model(name: str) -> object:
    raise ConfigError(f"{name} is not here.")


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grls.fitting.models, "find_encoder", no_model)
    monkeypatch.setattr(grls.fitting.models, "find_writer", no_model)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block, documents = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len([line for line in block.splitlines() if line.strip()]) <= 16
    names: dict[str, object] = {}
    exec(block, names)
    hits = grls.load("runs/otters").search("what do otters eat?", k=5)
    assert (hits[0].id, hits[0].text) == ("0", "Otters eat fish.")
    printed = capsys.readouterr().out
    assert "Otters eat fish." in printed
    assert re.search(r"^\W*mine\b.*100", printed, re.MULTILINE)  # of the experiment
    (tmp_path / "manuals").mkdir()
    (tmp_path / "manuals" / "otters.md").write_text("# Dens\n\nOtters sleep in a holt by the river.\n")
    alone = documents.replace("output=", "biencoder=None, generator=None, output=")  # BM25
    exec(alone, names)
    assert "Dens otters.md 1" in capsys.readouterr().out
