"""What ``pip install grls`` and its extras can do, and what they say is missing."""

import json
import shutil
from importlib.metadata import distribution
from pathlib import Path

import pytest
from composite_specs import COMPOSITES, written
from encoder_models import tiny_colbert, tiny_splade
from install import runs
from installed_packages import Environment, brought_by, metadata_of
from verbs import commands as every_command

from grls.data.corpus import Corpus
from grls.io.ending import EXTRAS
from grls.retrieve.multi_vector import LateTexts, MultiVectorRetriever
from grls.retrieve.registry import KINDS
from grls.retrieve.sparse import SparseRetriever, SparseTexts
from grls.retrieve.spec import read_spec

OTHER_PACKAGES = {
    p for extra, packages in EXTRAS.items() if extra not in ("models", "eval") for p in packages
}

BASE = """
import sys
import grls

bm25 = grls.BM25(grls.documents("docs"))
hops = bm25.hops(steps="ranked")
hops.save("hops")
fused = grls.fuse([bm25, grls.load("hops")])
for one in (bm25, hops, fused):
    print(one.search("the mayor of the capital of Italy", k=2)[1].id)
print(grls.check_folder("hops").parts[-1].fault)
print(sorted(name for name in sys.modules if "." not in name))
"""

LACKS = """
import sys
import grls
from grls.errors import ConfigError

calls = {
    "models": [lambda: grls.load("dense"), lambda: grls.Generator("generative/model")],
    "eval": [lambda: grls.experiment],
    "train": [lambda: grls.fit(["an otter", "a heron"])],
}
for extra, tried in calls.items():
    for call in tried:
        try:
            call()
        except ConfigError as error:
            print(extra, error)
"""

SEARCH = """
import json, sys
import grls

hits = {}
for name in sys.argv[1:]:
    retriever = grls.load(name, device="cpu")
    hits[name] = [hit.text for hit in retriever.search("is the otter calm ?", k=3)]
print(json.dumps([grls.__file__, hits, sorted(name for name in sys.modules if "." not in name)]))
"""

COMMANDS = """
import contextlib, io, json, sys
from grls.cli import main

ended = []
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(line.split())
        except SystemExit as end:
            code = end.code
    ended.append([line, code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def place(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a retriever of each kind, and their data set."""
    place = Path(shutil.copytree(kinds, tmp_path_factory.mktemp("every") / "kinds"))
    corpus = Corpus.read(place / "data")
    sparse = SparseTexts.load(str(tiny_splade(place)), device="cpu")
    SparseRetriever.assemble(sparse, corpus).save_pretrained(place / "sparse")
    late = LateTexts.load(str(tiny_colbert(place)), device="cpu")
    MultiVectorRetriever.assemble(late, corpus).save_pretrained(place / "multi-vector")
    written(place / "link", {"kind": "link", "retriever": "../bm25"})
    return place


def commands(environment: Environment, place: Path, *lines: str) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of commands, one after the other in one process."""
    done = environment.run("-c", COMMANDS, json.dumps(lines), cwd=place)
    assert done.returncode == 0, done.stderr
    return {line: (code, out, err) for line, code, out, err in json.loads(done.stdout.splitlines()[-1])}


def test_the_base_searches_documents_by_names(core: Environment, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rome.md").write_text("# Rome\n\nRome is the capital of Italy.\n")
    (tmp_path / "docs" / "ann.md").write_text("# Ann Bell\n\nAnn Bell is the mayor of Rome.\n")
    done = core.run("-c", BASE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *found, fault, modules = done.stdout.splitlines()
    assert found == ["ann.md:0"] * 3 or found == ["rome.md:0"] * 3
    assert not fault
    assert not {"torch", "scipy", "pandas"} & {*json.loads(modules.replace("'", '"'))}


def test_the_base_is_small(core: Environment, wheel: Path, tmp_path: Path) -> None:
    """At most 300 MB beside torch, which it does not bring."""
    brought = brought_by(metadata_of(wheel, tmp_path), ())
    assert "torch" not in brought
    files = {name: distribution(name).files or () for name in brought}
    sizes = {name: sum(file.size or 0 for file in files[name]) / 1e6 for name in brought}
    assert 100 < sum(sizes.values()) < 300, sizes


def test_calls_say_which_extra_they_lack(core: Environment, place: Path) -> None:
    done = core.run("-c", LACKS, cwd=place)
    told = [line.partition(" ") for line in done.stdout.splitlines()]
    assert [extra for extra, _, _ in told] == ["models", "models", "eval", "train"], done.stderr
    for extra, _, error in told:
        assert error.endswith(f'(not installed): `pip install "grls[{extra}]"`.')


def test_every_kind_is_searched(models: Environment, place: Path) -> None:
    names = ["bm25", "dense", "sparse", "multi-vector", "generative", "link", *COMPOSITES]
    ours = {kind for kind, target in KINDS.items() if target.startswith("grls.")}
    assert {read_spec(place / name).get("kind", "generative") for name in names} == ours
    done = models.run("-c", SEARCH, *names, cwd=place)
    assert done.returncode == 0, done.stderr
    file, hits, modules = json.loads(done.stdout.splitlines()[-1])
    assert file.startswith(str(models.folder))
    assert not {*modules} & OTHER_PACKAGES
    assert {*hits} == {*names}
    assert all(hits.values())


def test_the_readme_runs(everything: Environment, tmp_path: Path) -> None:
    """And ``grls fit`` on a list of texts; ``make install-check`` does it with packages installed anew."""
    runs(everything.python, tmp_path / "new")


def test_runs_are_made_and_evaluated(models: Environment, place: Path) -> None:
    lines = [
        f"retrieve {name} --data data --split test --device cpu --output runs/{name}"
        for name in ("bm25", "hybrid", "fusion")
    ]
    evaluate = "evaluate runs/bm25.jsonl runs/hybrid.jsonl --data data --split test --measures nDCG@10"
    ended = commands(models, place, *lines, evaluate, "check data", "index bm25 --corpus data --output new")
    assert {line: (code, err) for line, (code, _, err) in ended.items() if code} == {}
    assert "nDCG@10" in ended[evaluate][1]


NEEDS = {
    "search dense otter": "models",
    "index generative/model --corpus data --output new": "models",
    "experiment bm25 --data data": "eval",
    "fit data --output new": "train",
    "serve bm25": "serve",
    "train memorise --config memorise --data.data data": "train",
}


@pytest.fixture(scope="module")
def ended(core: Environment, place: Path) -> dict[str, tuple[int, str, str]]:
    """What came of every help and of :data:`NEEDS`."""
    return commands(core, place, "--version", *(f"{line} --help" for line in every_command()), *NEEDS)


def test_what_needs_an_extra_says_which(ended: dict[str, tuple[int, str, str]]) -> None:
    for line, extra in NEEDS.items():
        code, _, err = ended[line]
        assert code == 1, (line, err)
        assert err.startswith("error: "), err
        assert err.count("\n") == 1, err
        assert f'pip install "grls[{extra}]"' in err
        assert any(package in err for package in EXTRAS[extra])


def test_every_help_is_there_without_extras(ended: dict[str, tuple[int, str, str]]) -> None:
    helps = {line: told for line, told in ended.items() if line not in NEEDS}
    assert len(helps) > 30
    for line, (code, out, err) in helps.items():
        assert code == 0, (line, err)
        if line.startswith("train memorise"):
            assert 'pip install "grls[train]"' in " ".join(out.split())
