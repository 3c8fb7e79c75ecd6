"""Writes a folder of a version beside this file: a small folder of every kind, and what each answers.

    PYTHONPATH=.:tests/helpers python tests/kept/make.py

Do this for a release whose formats differ from those of the last kept version. The folders open for ever and
answer as ``answers.jsonl`` beside them says (``tests/retrieve/test_kept.py``), so a kept version is never
written again. The models are random.
"""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from composite_specs import COMPOSITES
from cross_encoders import cross_encoder
from encoder_models import tiny_colbert, tiny_splade
from small_data import queries, tiny_bert, write_small

import grls
from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours
from grls.data.types import Passage
from grls.index import Segment, load_index, save_index
from grls.index.ranges.cut import PrefixRanges
from grls.io.files import atomic_file, sha256
from grls.io.jsonl import write_line
from grls.models.biencoder import BiEncoderModel
from grls.models.load.build import ScratchT5
from grls.models.rescore_spec import RescoreInput
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.multi_vector import MultiVectorRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.rescored.retriever import RescoredRetriever
from grls.retrieve.run import retrieve_results
from grls.retrieve.sparse import SparseRetriever
from grls.retrieve.spec import update_spec, write_link, write_spec
from grls.runs.manifest import RunInfo, fingerprint_queries
from grls.runs.save import save_retrieved

HERE = Path(__file__).parent
DATA, RUN, NEAR, ANSWERS = "data", "run", "neighbours.safetensors", "answers.jsonl"
SEAL = "SHA256"
DEPTH = 4
ADDED = [Passage("new-1", "the otter is new ."), Passage("new-2", "the stoat is quick .")]


def make(place: Path) -> None:
    """Write a data set, a folder of every kind, a run, a file of neighbours, and the answers."""
    data = write_small(place / DATA)
    passages = list(Corpus.read(data))
    years = [{"year": 2000 + number} for number in range(len(passages))]
    Corpus.from_passages(passages, metadata=years).write(data / "corpus.jsonl")
    BM25Retriever(Corpus.read(data), k1=1.2).save_pretrained(place / "bm25")
    _generative(place)
    _encoded(place)
    for name, spec in COMPOSITES.items():
        write_spec(place / name, spec["kind"], {key: spec[key] for key in spec if key != "kind"})
    write_link(place / "link", place / "fusion")
    Neighbours.of_lists([[1, 2], [0]] + [[]] * (len(passages) - 2), 2, "bm25").write(
        place / NEAR, Corpus.read(data)
    )
    _run(place)
    folders = sorted(path.parent for path in place.glob("*/grls.json"))
    with atomic_file(place / ANSWERS) as stream:
        for folder in folders:
            write_line(stream, {"folder": folder.name, **answers(folder)})
        for folder in sorted(place.glob("index-*")):
            write_line(stream, {"folder": folder.name, **rows(folder)})


def seal(place: Path) -> None:
    """Write one checksum of all files, so that a change of one is seen."""
    files = sorted(path for path in place.rglob("*") if path.is_file())
    sums = "".join(f"{sha256(path)} {path.relative_to(place).as_posix()}\n" for path in files)
    (place / SEAL).write_text(hashlib.sha256(sums.encode()).hexdigest() + "\n")


def answers(folder: Path) -> dict[str, Any]:
    """What a retriever folder answers: its fingerprint, and rankings and chains of two queries."""
    retriever = load_retriever(folder, Opening("cpu", verify=True))
    asked = [query._replace(evidence=()) for query in queries()[:2]]
    results = retrieve_results(retriever, asked, DEPTH, False, [None] * len(asked))
    return {
        "fingerprint": retriever.fingerprint(),
        "hits": [[[hit.id, round(hit.score, 5)] for hit in one.hits] for one in results],
        "hops": [None if one.chain is None else [hit.id for hit in one.chain.hits] for one in results],
    }


def rows(folder: Path) -> dict[str, Any]:
    """The passages of an index, as tokens."""
    index = load_index(folder, verify=True)
    return {"tokens": [list(map(int, index.tokens(number))) for number in range(len(index))]}


def _generative(place: Path) -> None:
    """Generative folders: plain, changed, of spans, of ranges; indexes of other backends."""
    data = place / DATA
    torch.manual_seed(0)
    model, tokenizer = ScratchT5(
        data=str(data), vocabulary=60, d_model=4, d_ff=4, d_kv=2, num_layers=1, num_decoder_layers=1,
        num_heads=2, dropout=0.0,
    ).load()  # fmt: skip
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20.0)  # so that scores are far apart
    parts = (model.eval(), tokenizer, Corpus.read(data), Limits())
    plain = GenerativeRetriever.assemble(*parts)
    made = {
        "generative": plain,
        "spans": GenerativeRetriever.assemble(*parts, span_words=3, rescore_input=RescoreInput(4)),
    }
    for name, retriever in made.items():
        retriever.save_pretrained(place / name)
    for backend in ("marisa", "flat"):
        index = GenerativeRetriever.assemble(*parts, backend=backend).index
        assert isinstance(index, Segment)
        save_index(index, place / f"index-{backend}", "tokenizer", "corpus")
    prefixes = GenerativeRetriever.assemble(*parts, form="prefixes")
    prefixes.save_pretrained(place / "ranges", PrefixRanges(2))
    update_spec(place / "ranges", {"search": {"beams": 7}, "hops": {"steps": "dynamic", "max": 3}})
    plain.add(Corpus.from_passages(ADDED))
    plain.remove(["otter-calm"])
    plain.save_pretrained(place / "changed")


def _encoded(place: Path) -> None:
    """Dense, sparse and multi-vector folders, a cross-encoder, and passages that it ranks alone."""
    data, size = str(place / DATA), {"layers": 1, "width": 4}
    with tempfile.TemporaryDirectory() as scratch:
        models = Path(scratch)
        torch.manual_seed(0)
        biencoder = BiEncoderModel.load(
            str(tiny_bert(models / "bert", **size)), device="cpu", similarity="dot"
        )
        DenseRetriever.assemble(biencoder, Corpus.read(data)).save_pretrained(place / "dense")
        how = {"asked": "auto", "device": "cpu"}
        late, splade = tiny_colbert(models / "late", **size), tiny_splade(models / "splade", **size)
        SparseRetriever.build(str(splade), data, Building(str(place / "sparse"), **how))
        MultiVectorRetriever.build(str(late), data, Building(str(place / "multi-vector"), **how))
        shutil.copytree(cross_encoder(models / "cross", width=4), place / "encoder")
        RescoredRetriever.build(str(place / "encoder"), data, Building(str(place / "embedded"), **how))


def _run(place: Path) -> None:
    """A run of single steps, and one of chains, as ``grls retrieve`` writes them."""
    corpus, asked = Corpus.read(place / DATA), queries()[:2]
    for name, folder in ((RUN, "bm25"), (f"{RUN}-chains", "hops")):
        retriever = load_retriever(place / folder, Opening("cpu"))
        told = retriever.describe()
        info = RunInfo(
            told.system, name, told.steps, corpus.fingerprint, fingerprint_queries(asked), DATA, None,
            told.score_mode, told.stages, told.members,
        )  # fmt: skip
        results = retrieve_results(retriever, asked, DEPTH, False, [None] * len(asked))
        save_retrieved(place / name, asked, corpus, results, info)


if __name__ == "__main__":
    goal = HERE / (sys.argv[1] if len(sys.argv) > 1 else grls.__version__)
    if goal.exists():
        sys.exit(f"{goal} is kept for ever and not written again; give another name.")
    try:
        make(goal)
        seal(goal)
    except BaseException:
        shutil.rmtree(goal, ignore_errors=True)
        raise
    print(goal, sum(path.stat().st_size for path in goal.rglob("*") if path.is_file()), "bytes")
