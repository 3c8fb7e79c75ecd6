"""What ``pip install grls`` can do without any extra: search, serve, evaluate, and say what is missing."""

import json
import shutil
from pathlib import Path

import pytest
from composite_specs import COMPOSITES, written
from encoder_models import tiny_colbert, tiny_splade
from install import runs
from installed_packages import Environment
from verbs import commands as every_command

from grls.data.corpus import Corpus
from grls.io.ending import EXTRAS
from grls.retrieve.multi_vector import LateTexts, MultiVectorRetriever
from grls.retrieve.registry import KINDS
from grls.retrieve.sparse import SparseRetriever, SparseTexts
from grls.retrieve.spec import read_spec

EXTRA_PACKAGES = sorted({package for packages in EXTRAS.values() for package in packages})

SEARCH = """
import json, sys
import grls

hits = {}
for name in sys.argv[1:]:
    retriever = grls.load(name, device="cpu")
    hits[name] = [hit.text for hit in retriever.search("is the otter calm ?", k=3)]
print(json.dumps([grls.__file__, hits, sorted(name for name in sys.modules if "." not in name)]))
"""

TRAINS = """
import grls
from grls.errors import ConfigError

for made in (grls.BiEncoder("bert"), grls.Generator("generative/model")):
    try:
        made.fit(["an otter", "a heron"], {"q": "otter"}, {"q": ["0"]})
    except ConfigError as error:
        print(error)
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


def test_every_kind_is_searched(core: Environment, place: Path) -> None:
    names = ["bm25", "dense", "sparse", "multi-vector", "generative", "link", *COMPOSITES]
    ours = {kind for kind, target in KINDS.items() if target.startswith("grls.")}
    assert {read_spec(place / name).get("kind", "generative") for name in names} == ours
    done = core.run("-c", SEARCH, *names, cwd=place)
    assert done.returncode == 0, done.stderr
    file, hits, modules = json.loads(done.stdout.splitlines()[-1])
    assert file.startswith(str(core.folder))
    assert not {*modules} & {*EXTRA_PACKAGES}
    assert {*hits} == {*names}
    assert all(hits.values())


def test_the_readme_runs(core: Environment, tmp_path: Path) -> None:
    """And ``grls fit`` on a list of texts; ``make install-check`` does it with packages installed anew."""
    runs(core.python, tmp_path / "new")


def test_runs_are_made_and_evaluated(core: Environment, place: Path) -> None:
    lines = [
        f"retrieve {name} --data data --split test --device cpu --output runs/{name}"
        for name in ("bm25", "hybrid", "fusion")
    ]
    evaluate = "evaluate runs/bm25.jsonl runs/hybrid.jsonl --data data --split test --measures nDCG@10"
    ended = commands(core, place, *lines, evaluate, "check data", "index bm25 --corpus data --output new")
    assert {line: (code, err) for line, (code, _, err) in ended.items() if code} == {}
    assert "nDCG@10" in ended[evaluate][1]


NEEDS = {
    "train memorise --config memorise --data.data data": "train",
    "train biencoder --data data --output out --source bert": "train",
    "train reranker --train x --dev y --data data --output out": "train",
    "answer dsp vanilla --data data --model m --output out": "dsp",
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
        assert EXTRAS[extra][0] in err


def test_every_help_is_there_without_extras(ended: dict[str, tuple[int, str, str]]) -> None:
    helps = {line: told for line, told in ended.items() if line not in NEEDS}
    assert len(helps) > 30
    for line, (code, out, err) in helps.items():
        assert code == 0, (line, err)
        if line.startswith("train memorise"):
            assert 'pip install "grls[train]"' in " ".join(out.split())


def test_training_from_python_says_what_it_needs(core: Environment, place: Path) -> None:
    done = core.run("-c", TRAINS, cwd=place)
    told = done.stdout.splitlines()
    assert len(told) == 2, done.stderr
    assert all("needs lightning and tensorboard" in line for line in told)


def test_bm25_searches_without_torch(core: Environment, place: Path) -> None:
    done = core.run("-c", SEARCH, "bm25", cwd=place)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "transformers", "sentence_transformers"} & {*json.loads(done.stdout)[2]}
