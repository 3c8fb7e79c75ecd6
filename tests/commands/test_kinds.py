"""A kind of retriever in all that asks retrievers: one that is registered here, and one that came last.

What a kind is made of, no command knows: its class and its name in the registry are enough.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from biencoder_helpers import options as biencoder_options
from composite_specs import write_spec
from encoder_models import tiny_colbert
from failing import fails
from fixture_types import Capsys
from small_data import passages, small_tokenizer, tiny_bert
from toy_kind import TARGET, ToyRetriever

from grls.cli import main
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.errors import ConfigError
from grls.retrieve.base import FindsChains
from grls.retrieve.build import Building
from grls.retrieve.registry import KINDS, Opening, load_retriever, register
from grls.retrieve.spec import read_spec
from grls.runs.portions import read_info
from grls.runs.run import Run
from grls.train.generator.data import RetrieverTeacher
from grls.train.generator.examples import HopExample
from grls.train.generator.rescoring import Proposals
from grls.train.options import Rescore

MODELS: dict[str, Any] = {"toy": tiny_bert, "multi-vector": tiny_colbert}


@pytest.fixture(scope="module")
def place(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data set, a generator, an encoder; the toy kind is known."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("data", "generative", "bert"):
        shutil.copytree(kinds / name, folder / name)
    register("toy", TARGET)
    yield folder
    del KINDS["toy"]


@pytest.fixture(scope="module", params=sorted(MODELS))
def folder(request: pytest.FixtureRequest, place: Path) -> Path:
    """A retriever folder of the kind, as ``grls index`` makes it, in a folder of its name."""
    kind = request.param
    model = MODELS[kind](place / "models" / kind)
    made = place / kind / "r"
    given = [f"{model}", f"--corpus={place / 'data'}", f"--output={made}", "--device=cpu"]
    assert main(["index", *given, f"--kind={kind}"]) == 0
    return made


def retrieved(folder: Path, place: Path, output: Path, *options: str) -> tuple[dict[str, list[str]], Any]:
    given = [f"--data={place / 'data'}", f"--output={output}", "--device=cpu", "--k=4", *options]
    assert main(["retrieve", str(folder), *given]) == 0
    found = Run.load(f"{output}.jsonl").rankings
    return {query: [hit.id for hit in hits] for query, hits in found.items()}, read_info(output)


def direct(folder: Path, place: Path) -> dict[str, list[str]]:
    queries = read_split(place / "data", "test")[0]
    opened = load_retriever(folder, Opening("cpu"))
    if isinstance(opened, FindsChains):
        hits = [list(chains[0].hits) for chains in opened.retrieve_chains(queries)]
    else:
        hits = opened.retrieve(queries, 4)
    return {query.id: [hit.id for hit in some] for query, some in zip(queries, hits, strict=True)}


def test_it_retrieves_alone_and_in_composites_and_is_reported(
    folder: Path, place: Path, capsys: Capsys
) -> None:
    kind, own = folder.parent.name, folder.parent
    found, info = retrieved(folder, place, own / "single")
    assert found == direct(folder, place)
    assert (info.system, info.steps) == (kind, "single")
    priors = [{"retriever": "../r", "weight": 8.0}]
    made: dict[str, dict[str, Any]] = {
        "hops": {"retriever": "../r", "hops": {"steps": "fixed", "max": 2}},
        "fusion": {"members": ["../r", {"kind": "bm25"}], "method": "rrf"},
        "hybrid": {"generator": "../../generative", "priors": priors},
    }
    alone = direct(place / "generative", place)
    for name, content in made.items():
        write_spec(own / name, name, content)
        found, info = retrieved(own / name, place, own / f"run-{name}")
        assert found == direct(own / name, place)
        assert {len(ids) for ids in found.values()} == {2 if name == "hops" else 4}
        assert info.system == {"hops": kind, "fusion": "ensemble", "hybrid": "hybrid"}[name]
        assert found != alone
    runs = [f"{own / name}.jsonl" for name in ("single", *(f"run-{name}" for name in made))]
    assert main(["evaluate", f"{runs[0]}", f"--data={place / 'data'}"]) == 0
    capsys.readouterr()
    assert main(["evaluate", f"{runs[0]}", f"{runs[1]}", f"--data={place / 'data'}"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line in runs] == runs[:2]
    assert main(["experiment", *runs, f"--output={own / 'page'}"]) == 0
    page = (own / "page.html").read_text()
    assert kind in page


def test_its_weight_as_a_prior_and_in_a_fusion_is_tuned(folder: Path, place: Path) -> None:
    """What is tuned is written into the folder, and changes what it finds."""
    own = folder.parent
    priors = [{"retriever": "../r", "weight": 0.01}]
    write_spec(own / "prior", "hybrid", {"generator": "../../generative", "priors": priors})
    write_spec(own / "fused", "fusion", {"members": ["../r", {"kind": "bm25"}], "method": "rrf"})
    given = [f"--data={place / 'data'}", "--split=dev", "--device=cpu", "--grid.k=2"]
    assert main(["tune", str(own / "prior"), *given, "--grid.prior_weights=[1, 4]"]) == 0
    assert read_spec(own / "prior")["priors"][0]["weight"] != 0.01
    assert main(["tune", str(own / "fused"), *given]) == 0
    assert len(read_spec(own / "fused")["weights"]) == 2


def test_it_is_tuned_by_the_steps_of_its_class(place: Path, tmp_path: Path, capsys: Any) -> None:
    ToyRetriever.build("none", str(place / "data"), Building(str(tmp_path / "r"), "toy"))
    assert main(["tune", str(tmp_path / "r"), f"--data={place / 'data'}", "--split=dev", "--device=cpu"]) == 0
    assert read_spec(tmp_path / "r")["power"] == 2
    assert "power: recall@2 0.0 -> " in capsys.readouterr().out


def test_it_teaches_proposes_and_finds_what_is_near_or_wrong(
    folder: Path, place: Path, tmp_path: Path
) -> None:
    corpus = Corpus.read(place / "data")
    hop = HopExample([], (3,), 3, "is the otter kind ?", (0,), (0, 3), "seed")
    teacher = RetrieverTeacher(str(folder), corpus, "cpu")
    teacher.passages = 4
    (opinion,) = teacher.opinions([hop])
    assert sum(opinion.values()) == pytest.approx(1)
    assert 0 not in opinion
    assert len(opinion) == 4
    opened: Any = load_retriever(folder, Opening("cpu"))
    (hits,) = opened.retrieve([f"is the otter kind ? {passages()[0].text}"], 5)
    best = [hit.id for hit in hits if hit.id != passages()[0].id][:4]
    assert corpus.ids(sorted(opinion, key=lambda n: -opinion[n]))[0] == best[0]
    codec = Codec(small_tokenizer(place / "data"))
    proposals = Proposals(Rescore([str(folder)]), corpus, codec, "cpu")
    assert proposals.sources[0].temperature == opened.temperature
    mined = [f"--negatives={folder}", "--fit.hard_negatives=2", "--fit.max_steps=1"]
    assert main(biencoder_options(place, tmp_path / "bi", *mined)) == 0


def test_what_scores_only_what_it_finds_teaches_nothing(place: Path) -> None:
    with pytest.raises(ConfigError, match="does not score all passages"):
        RetrieverTeacher(str(place / "generative"), Corpus.read(place / "data"))


def test_hard_negatives_of_another_corpus_are_refused(place: Path, tmp_path: Path, capsys: Capsys) -> None:
    Corpus.from_passages(passages()[:3]).write(tmp_path / "corpus.jsonl")
    ToyRetriever.build("none", str(tmp_path), Building(str(tmp_path / "r"), "toy"))
    wrong = [f"--negatives={tmp_path / 'r'}", "--fit.hard_negatives=2"]
    asked = biencoder_options(place, tmp_path / "bi", *wrong)
    assert "is over another corpus" in fails(capsys, *asked)
    assert not (tmp_path / "bi").exists()
