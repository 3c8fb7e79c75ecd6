"""A text or metadata that changed below a retriever is refused, and not answered from."""

import json
from pathlib import Path

import pytest
from small_data import tiny_bert, write_small

from grls.data.corpus import Corpus
from grls.errors import MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import read_spec

CPU = Opening("cpu")


@pytest.fixture
def data(tmp_path: Path) -> Corpus:
    corpus = Corpus.read(write_small(tmp_path / "data"))
    years = [{"year": 2000 + number} for number in range(len(corpus))]
    return Corpus.from_passages(list(corpus), metadata=years)


def changed(folder: Path, before: str, after: str) -> Path:
    file = folder / "corpus.jsonl"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    return folder


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("the otter is calm", "the otter is calf", "an id, title or text has changed"),
        ('"otter-calm"', '"otter-calf"', "an id, title or text has changed"),
        ('"year": 2001', '"year": 2011', "the metadata have changed"),
    ],
)
@pytest.mark.parametrize("kind", ["bm25", "dense"])
def test_one_changed_character_is_refused(
    tmp_path: Path, data: Corpus, kind: str, before: str, after: str, what: str
) -> None:
    if kind == "bm25":
        BM25Retriever(data).save_pretrained(tmp_path / kind)
    else:
        biencoder = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
        DenseRetriever.assemble(biencoder, data).save_pretrained(tmp_path / kind)
        what = what.replace("an id, title or text has changed", "made with another corpus")
    load_retriever(tmp_path / kind, CPU)
    with pytest.raises(MismatchError, match=f"{kind}.*{what}.*grls index"):
        load_retriever(changed(tmp_path / kind, before, after), CPU)


def test_a_folder_of_before_knows_no_fingerprint(tmp_path: Path, data: Corpus) -> None:
    BM25Retriever(data).save_pretrained(tmp_path / "bm25")
    spec = read_spec(tmp_path / "bm25")
    for name in ("passages_sha256", "metadata"):
        spec.pop(name)
    (tmp_path / "bm25" / "grls.json").write_text(json.dumps(spec))
    assert load_retriever(changed(tmp_path / "bm25", "2001", "2011"), CPU).kind == "bm25"
