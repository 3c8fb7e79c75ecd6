"""What ``pip install grls`` can do without any extra: search, serve, evaluate, and say what is missing."""

import json
import shutil
from pathlib import Path

import pytest
from composite_specs import COMPOSITES, written
from encoder_models import tiny_colbert, tiny_splade
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
    assert all(texts for name, texts in hits.items() if name != "cut")


def test_runs_are_made_and_evaluated(core: Environment, place: Path) -> None:
    lines = [
        f"retrieve {name} --data data --split test --device cpu --output runs/{name}"
        for name in ("bm25", "hybrid", "fusion")
    ]
    evaluate = "evaluate runs/bm25.jsonl runs/hybrid.jsonl --data data --split test --measures nDCG@10"
    ended = commands(core, place, *lines, evaluate, "check data", "index bm25 --corpus data --output new")
    assert {line: (code, err) for line, (code, _, err) in ended.items() if code} == {}
    assert "nDCG@10" in ended[evaluate][1]


def test_what_needs_an_extra_says_which(core: Environment, place: Path) -> None:
    expected = {
        "train memorise --config memorise --data.data data": "train",
        "train biencoder --data data --output out --source bert": "train",
        "train reranker --train x --dev y --data data --output out": "train",
        "report runs/bm25.jsonl": "report",
        "answer dsp vanilla --data data --model m --output out": "dsp",
    }
    ended = commands(core, place, *expected)
    for line, extra in expected.items():
        code, _, err = ended[line]
        assert code == 1, (line, err)
        assert err.startswith("error: "), err
        assert err.count("\n") == 1, err
        assert f'pip install "grls[{extra}]"' in err
        assert EXTRAS[extra][0] in err


def test_training_from_python_says_what_it_needs(core: Environment, place: Path) -> None:
    for made in ("BiEncoder('bert')", "Generator('generative/model')"):
        program = f"import grls\ngrls.{made}.fit(['an otter', 'a heron'], {{'q': 'otter'}}, {{'q': ['0']}})"
        done = core.run("-c", program, cwd=place)
        last = done.stderr.strip().splitlines()[-1]
        assert "needs lightning and tensorboard" in last, done.stderr
        assert last.startswith("grls.errors.ConfigError: ")


def test_bm25_searches_without_torch(core: Environment, place: Path) -> None:
    done = core.run("-c", SEARCH, "bm25", cwd=place)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "transformers", "sentence_transformers"} & {*json.loads(done.stdout)[2]}


def test_every_help_is_there_without_extras(core: Environment, place: Path) -> None:
    lines = [f"{line} --help" for line in every_command()]
    assert len(lines) > 30
    for line, (code, out, err) in commands(core, place, "--version", *lines).items():
        assert code == 0, (line, err)
        if line.startswith("train memorise"):
            assert 'pip install "grls[train]"' in " ".join(out.split())
