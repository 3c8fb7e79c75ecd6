"""Folders of earlier versions, which called spans and rescoring otherwise, open and retrieve as before."""

import shutil
from pathlib import Path

import pytest
from small_data import queries

from grls.cli import main
from grls.data.spans import SPANS
from grls.errors import DataError
from grls.io.files import read_json, write_json
from grls.models.rescore_spec import RESCORE, RescoreInput
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever

KEPT = Path(__file__).parents[2] / "kept"
"""``spans``: the folder of a random model, of format 3. ``spans.json``: what it retrieved then."""
SEARCH = SearchOptions(beams=10, rescore=4)


def opened(folder: Path) -> GenerativeRetriever:
    return GenerativeRetriever.from_pretrained(folder, "cpu", options=SEARCH)


def retrieves_as_kept(retriever: GenerativeRetriever) -> None:
    kept = read_json(KEPT / "spans.json")
    assert retriever.fingerprint() == kept["fingerprint"]
    assert retriever.spans is not None
    assert retriever.spans.record == {"words": 3, "by": "script"}
    assert retriever.rescore_input == RescoreInput(4)
    for row, then in zip(retriever.retrieve(queries()[:2], 3), kept["hits"], strict=True):
        assert [hit.id for hit in row] == [name for name, _ in then]
        assert [hit.score for hit in row] == pytest.approx([score for _, score in then], abs=1e-4)


def test_an_earlier_folder_retrieves_as_it_did() -> None:
    manifest = read_json(KEPT / "spans" / "grls.json")
    assert (manifest["format"], "views" in manifest, "assess" in manifest) == (3, True, True)
    retrieves_as_kept(opened(KEPT / "spans"))


def test_saved_anew_it_has_the_names_of_today(tmp_path: Path) -> None:
    opened(KEPT / "spans").save_pretrained(tmp_path / "new")
    manifest = read_json(tmp_path / "new" / "grls.json")
    assert (manifest["format"], manifest["spans"]["words"], manifest["rescore"]) == (4, 3, {"tokens": 4})
    assert not {"views", "assess"} & set(manifest)
    retrieves_as_kept(opened(tmp_path / "new"))


def test_a_model_that_was_trained_earlier_is_indexed_as_it_learned(tmp_path: Path) -> None:
    model = KEPT / "spans" / "model"
    assert {file.name for file in model.iterdir()} >= {"views.json", "assess.json"}
    made = ["index", str(model), f"--corpus={KEPT / 'spans'}", f"--output={tmp_path / 'made'}"]
    assert main(made) == 0
    retrieves_as_kept(opened(tmp_path / "made"))


def test_the_names_of_today_come_first(tmp_path: Path) -> None:
    model = shutil.copytree(KEPT / "spans" / "model", tmp_path / "model")
    write_json(model / SPANS, {"words": 2, "by": "spaces"})
    write_json(model / RESCORE, {"tokens": 7})
    made = ["index", str(model), f"--corpus={KEPT / 'spans'}", f"--output={tmp_path / 'made'}"]
    assert main(made) == 0
    retriever = opened(tmp_path / "made")
    assert retriever.spans is not None
    assert retriever.spans.record == {"words": 2, "by": "spaces"}
    assert retriever.rescore_input == RescoreInput(7)


@pytest.mark.parametrize(("key", "said"), [("views", "length of spans"), ("assess", "how much is read")])
def test_a_damaged_earlier_folder_is_named(key: str, said: str, tmp_path: Path) -> None:
    folder = shutil.copytree(KEPT / "spans", tmp_path / "old")
    write_json(folder / "grls.json", read_json(folder / "grls.json") | {key: 8})
    with pytest.raises(DataError, match=rf"grls\.json.*{said}"):
        opened(folder)
