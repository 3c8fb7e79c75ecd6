"""``grls index hybrid|hops|fusion|rescored|cut|bm25``: folders, what they find, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from failing import fails
from fixture_types import Capsys
from small_data import passages

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.retriever import Fusion, FusionRetriever
from grls.retrieve.hops.finders import found_after
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import read_spec


@pytest.fixture(scope="module")
def place(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data``, a cross-encoder ``reads``, and the folders ``generator``, ``dense`` and, of another corpus,
    ``other``.
    """
    folder = tmp_path_factory.mktemp("composites")
    for name, kind in {
        "data": "data",
        "generator": "generative",
        "dense": "dense",
        "reads": "encoder",
    }.items():
        shutil.copytree(kinds / kind, folder / name)
    encoder = BiEncoderModel.load(str(kinds / "bert"), device="cpu")
    fewer = Corpus.from_passages(passages()[1:])
    DenseRetriever.assemble(encoder, fewer).save_pretrained(folder / "other")
    return folder


def spec(folder: Path) -> Any:
    return read_spec(folder)


def test_what_a_folder_says_of_hops_and_search_is_taken_over(place: Path) -> None:
    """Options of the retriever that is wrapped stand in for those that are not given."""
    kept = place / "with-options"
    shutil.copytree(place / "dense", kept)
    written = spec(kept) | {"hops": {"steps": "fixed", "max": 2}, "search": {"batch_size": 7}}
    (kept / "grls.json").write_text(json.dumps(written))
    assert main(["index", "hops", str(kept), f"--output={place / 'taken'}", "--hops.max=4"]) == 0
    assert spec(place / "taken")["hops"] == {"steps": "fixed", "max": 4}
    assert spec(place / "taken")["search"] == {"batch_size": 7}


def test_no_stage_is_named_twice(place: Path, capsys: Capsys) -> None:
    """By no command that makes a folder of folders, also of such folders."""
    dense = str(place / "dense")
    generator, bm25 = str(place / "generator"), '--priors=[{"retriever": "bm25"}]'
    one_hop = ["--hops.steps=ranked", "--hops.max=1"]
    labels = {
        "hops": (["hops", dense, "--hops.steps=fixed"], "biencoder in 20 hops"),
        "ranked": (["hops", dense, *one_hop], "hops, biencoder ranked by 1 hop"),
        "rescored": (["rescored", dense, f"--model={place / 'reads'}"], "biencoder, rescored"),
        "fusion": (["fusion", dense, "bm25"], "fusion, biencoder + bm25"),
        "hybrid": (["hybrid", generator, bm25], "hybrid"),
    }
    for name, (command, label) in labels.items():
        capsys.readouterr()
        assert main(["index", *command, f"--output={place / f'n-{name}'}"]) == 0
        line = capsys.readouterr().out.splitlines()[0]
        assert line.startswith(f"{place / f'n-{name}'}: {label}, score mode "), line


def test_a_cross_encoder_is_not_lost_with_the_folder_that_is_replaced(
    place: Path, tmp_path: Path, capsys: Capsys
) -> None:
    """``grls index MODEL`` writes a copy of the model, which the new folder names."""
    made = tmp_path / "made"
    asked = ["index", str(place / "reads"), f"--corpus={place / 'data'}", f"--output={made}", "--device=cpu"]
    assert main(asked) == 0
    before = spec(made)
    again = ["index", "rescored", str(place / "dense"), f"--model={made / 'model'}", f"--output={made}"]
    assert f"is or holds {made / 'model'}, a member of" in fails(capsys, *again)
    assert spec(made) == before
    assert load_retriever(made, Opening("cpu")).kind == "rescored"


def test_an_earlier_folder_stays_where_the_new_one_cannot_be(
    place: Path, tmp_path: Path, capsys: Capsys
) -> None:
    made = tmp_path / "made"
    command = ["index", "fusion", f"--output={made}", str(place / "dense")]
    assert main([*command, str(place / "generator")]) == 0
    before = spec(made)
    fails(capsys, *command, str(place / "other"))
    assert spec(made) == before
    message = fails(capsys, *command, str(made))
    assert "which is this retriever itself" in message or "would be lost" in message


def test_members_of_a_fusion_take_evidence_each_in_its_own_way(kinds: Path) -> None:
    members = [load_retriever(kinds / one, Opening("cpu")) for one in ("bm25", "dense")]
    evidence = [Passage("e", "the otter is calm . " * 200)]
    query = Query("q", "is the heron quick ?")
    (step,) = found_after(FusionRetriever(members, Fusion("rrf")), [query], [evidence], 5)
    rankings = [found_after(one, [query], [evidence], 20)[0].hits for one in members]
    assert step.hits == Fusion("rrf").fuse(rankings, 5)


def test_an_error_of_a_folder_that_is_not_written_does_not_name_it(
    kinds: Path, tmp_path: Path, capsys: Capsys
) -> None:
    other = tmp_path / "other"
    Corpus.from_passages([Passage("x", "another corpus")]).write(tmp_path / "corpus.jsonl")
    assert main(["index", "bm25", f"--corpus={tmp_path}", f"--output={other}"]) == 0
    for member in (other, tmp_path / "none"):
        line = fails(
            capsys, "index", "fusion", f"{kinds / 'bm25'}", f"{member}", f"--output={tmp_path / 'new'}"
        )
        assert f"{tmp_path / 'new'}" not in line
