"""The runs whose results are frozen in ``tests/frozen``, and how each is called.

Nothing but the calling stands here and in ``frozen_place.py``: how a command, an option or a class is named
today. What comes back is made of ids, scores, losses, answers and checksums alone, so a new name changes
these two files and no frozen one. ``test_frozen.py`` runs all and compares. To freeze anew, after a change
that is meant to change results::

    python tests/frozen_runs.py --write [NAME ...]
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

sys.path += [str(Path(__file__).parent / "helpers")]  # where helpers are

from biencoder_helpers import logged as biencoder_logged
from biencoder_helpers import options as biencoder_options
from composite_specs import write_spec
from frozen_place import Place, answered, called, curve, lines, measures, reached, results
from frozen_values import HERE, freeze
from quoting_model import QUERIES as ASKED
from reader_helpers import ScriptedWriter
from report_helpers import page_text
from small_data import queries, small_tokenizer
from train_helpers import chain_options

from data_prep.ruletaker import prepare
from data_prep.theory import TheoryOptions
from grls.answer.iterative import IterativeReader
from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.spans import Spans
from grls.index.build import build_index
from grls.index.registry import BACKENDS
from grls.index.storage import save_index
from grls.models.load.language import load_language_model
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.spec import read_spec, relative

TINY = {"vocabulary": 200, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 1, "num_decoder_layers": 1}
QUIET = ("--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false", "--trainer.log_every_n_steps=1")


def data_preparation(place: Place) -> Any:
    """Checksums of what the quickstart's generator writes."""
    found = {}
    small = TheoryOptions(6, 8, 14)
    for name, theory, seed in (
        ("facts", small, 0),
        ("conjunctions", TheoryOptions(6, 8, 14, conjunction_rate=0.5), 0),
        ("relations", TheoryOptions(6, 4, 20, conjunction_rate=0.5, relations=4, named_rate=0.5), 0),
        ("seed", small, 7),
    ):
        folder = place.folder / "ruletaker" / name
        prepare(folder, theory, train=60, dev=10, test=20, seed=seed)
        files = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/dev.tsv", "qrels/test.tsv")
        found[name] = {file: sha256((folder / file).read_bytes()).hexdigest() for file in files}
    return found


def quickstart(place: Place) -> Any:
    """Memorise, retrieve, index, hop by hop, measures: the quickstart with a tiny model and few steps."""
    root = place.folder / "quickstart"
    prepare(root / "data", TheoryOptions(6, 6, 8), train=48, dev=4, test=8)
    common = [f"--data.data={root / 'data'}", "--data.batch_size=16", *QUIET]
    tiny = [f"--model.generator.{name}={value}" for name, value in {**TINY, "data": root / "data"}.items()]
    found: dict[str, Any] = {}
    for stage, epochs, more in (
        ("memorise", 8, [*tiny, "--model.learning_rate=1e-2", "--trainer.check_val_every_n_epoch=4"]),
        ("retrieve", 4, [f"--model.generator.name_or_path={root / 'memorise' / 'model'}"]),
    ):
        layers = [f"--config=configs/{layer}.yaml" for layer in (stage, f"scratch/{stage}", "quickstart")]
        called(
            "train",
            stage,
            *layers,
            f"--output={root / stage}",
            f"--trainer.max_epochs={epochs}",
            *common,
            *more,
        )
        names = ("train_loss", "dev_loss", "dev_recall", *(["dev_f1"] if stage == "retrieve" else []))
        found[stage] = curve(root / stage, *names)
    called("index", f"{root / 'retrieve' / 'model'}", f"--corpus={root / 'data'}", f"--output={root / 'r'}")
    given = [f"--data={root / 'data'}", "--split=test", "--device=cpu", f"--output={root / 'test'}"]
    called("retrieve", root / "r", *given, "--hops.steps=dynamic", "--hops.max=5")
    found["chains"] = results(f"{root / 'test'}.jsonl")
    found["measures"] = measures(str(root / "test"), root / "data", "test")
    return found


def spans(place: Place) -> Any:
    """A generator that begins at any word, alone, with priors and rescored."""
    made_of = [{"retriever": "bm25", "weight": 0.5}, {"retriever": "../dense", "weight": 2}]
    place.dense  # noqa: B018  made before it is named
    base, priors = place.spans, place.hybrid("spans", place.spans, *made_of)
    empty = place.hybrid("empty", place.spans, *made_of, empty_weight=0.25)
    warm = [{**some, "temperature": t} for some, t in zip(made_of, (2, 0.5), strict=True)]
    normalized = place.hybrid("normalized", place.spans, *warm, normalized=True)
    rescored = ["--search.rescore=4", "--search.rescore_weight=2"]
    hops = ["--hops.steps=dynamic", "--hops.max=3"]
    runs: dict[str, list[Any]] = {
        "alone": [base],
        "temperature": [base, "--search.span_temperature=1", "--search.beams=4"],
        "full": [base, "--search.mode=full"],
        "rescored": [base, *rescored],
        "priors": [priors],
        "empty": [empty],
        "normalized": [normalized],
        "priors-rescored": [priors, *rescored],
        "hops": [base, *hops, "--hops.done_bias=0.5"],
        "hops-priors-rescored": [normalized, *rescored, *hops, "--hops.done_bias=-1"],
    }
    return {name: place.retrieved(f"spans-{name}", *options) for name, options in runs.items()}


def rivals(place: Place) -> Any:
    """Bi-encoder and BM25: single-step, in hops, until DONE."""
    fixed = ["--hops.steps=fixed", "--hops.max=2"]
    runs: dict[str, list[Any]] = {
        "dense": [place.dense],
        "dense-fixed": [place.dense, *fixed],
        "dense-dynamic": [place.dense_done, "--hops.steps=dynamic", "--hops.max=3", "--hops.done_bias=1"],
        "bm25": ["bm25"],
        "bm25-fixed": ["bm25", *fixed],
        "bm25-stemmed": ["bm25", "--analyzer.language=en", "--analyzer.stem=true"],
    }
    return {name: place.retrieved(f"rivals-{name}", *options) for name, options in runs.items()}


def chains(place: Place) -> Any:
    """An encoder-decoder, hop by hop: fixed, until DONE, as sets, by expected F1, pooled, with priors."""
    base, until = place.sequence, ["--hops.steps=dynamic", "--hops.max=4"]
    place.dense  # noqa: B018  made before it is named
    priors = place.hybrid("chains", base, {"retriever": "../dense", "weight": 2})
    words = place.hybrid("words", base, {"retriever": "bm25", "weight": 0.5}, done_share=-1)
    six = ["--hops.chains=6", "--hops.branch=6", "--hops.done_bias=2"]
    runs: dict[str, list[Any]] = {
        "single": [base, "--search.beams=4"],
        "full": [base, "--search.mode=full"],
        "priors": [priors],
        "dynamic": [base, *until],
        "bias": [base, *until, "--hops.done_bias=3"],
        "sets": [base, *until, "--hops.sets=true", *six],
        "expected-f1": [base, *until, "--hops.choose=expected-f1", *six],
        "repeat": [base, *until, "--hops.repeat=true", "--hops.done_bias=2.5"],
        "dynamic-priors": [words, *until],
        "fixed": [base, "--hops.steps=fixed", "--hops.max=2"],
        "pooled": [base, "--hops.steps=fixed", "--hops.max=2", "--hops.pool=true"],
    }
    return {name: place.retrieved(f"chains-{name}", *options) for name, options in runs.items()}


def riches(place: Place) -> Any:
    """Answers with quotes, their keys and passages."""
    found = {}
    base = [f"--data={place.quoting / 'data'}", f"--model={place.quoting / 'model'}", "--device=cpu"]
    for name, options in {
        "sentences": [],
        "anywhere": ["--keys.anywhere=true", "--search.beam=full"],
        "paragraphs": ["--keys.kind=paragraph", "--search.mode=renormalized"],
    }.items():
        output = place.folder / "runs" / f"riches-{name}"
        beams = ("--search.beams=4", "--search.max_new_tokens=60")
        called("answer", "riches", *base, *beams, f"--output={output}", *options)
        found[name] = {"answers": answered(output), "found": results(f"{output}.jsonl")}
    return found


def reading(place: Place) -> list[str]:
    """A model that reads a text in a small window."""
    folder = place.ralm
    window = ["--reader.window=64", "--reader.document_tokens=12", "--reader.cut=8", "--device=cpu"]
    model, text, data = folder / "model", folder / "text.txt", folder / "data"
    return [f"--model={model}", f"--text={text}", f"--data={data}", *window]


def ralm(place: Place) -> Any:
    """Perplexities without retrieval, with BM25's documents, reranked; what is written on."""
    base, bm25 = reading(place), "--retriever=bm25"
    found = {}
    for name, options in {
        "closed": [],
        "bm25": [bm25],
        "stride": [bm25, "--reader.stride=7", "--reader.query_tokens=16", "--reader.documents=2"],
        "zero-shot": [bm25, "--rerank.by=zero-shot", "--rerank.candidates=3"],
        "oracle": [bm25, "--rerank.by=oracle"],
    }.items():
        output = place.folder / "runs" / f"ralm-{name}"
        called("ralm", *base, f"--output={output}", *options)
        summary = json.loads(Path(f"{output}.json").read_text())
        strides = [row for row in lines(f"{output}.strides.jsonl") if "log_probability" in row]
        found[name] = {
            "perplexity": [summary[key] for key in ("words", "tokens", "word", "token")],
            "strides": [[row["passages"], row["log_probability"]] for row in strides],
        }
    output = place.folder / "runs" / "ralm-text"
    few = ["--limit=20", "--max_new_tokens=24"]
    called("ralm", "generate", *base, bm25, f"--output={output}", *few)
    written = lines(f"{output}.texts.jsonl")[-1]
    return {**found, "text": [written["text"], written["passages"]]}


def fusion(place: Place) -> Any:
    """Three runs fused in each way, with weights tuned on other queries, and cut."""
    members: dict[str, list[Any]] = {
        "bm25": ["bm25"],
        "dense": [place.dense],
        "sequence": [place.sequence, "--search.beams=20"],
    }
    runs: dict[str, list[str]] = {split: [] for split in ("train", "test")}
    for split, files in runs.items():
        for name, options in members.items():
            place.retrieved(f"member-{name}-{split}", *options, split=split)
            files.append(str(place.folder / "runs" / f"member-{name}-{split}.jsonl"))
    tune = [f"--tune.runs={json.dumps(runs['train'])}", "--tune.k=2"]
    found: dict[str, Any] = {}
    for name, options in {
        "interleave": [],
        "rrf": ["--fusion.method=rrf", "--fusion.weights=[1, 2, 0.5]", "--fusion.rrf_k=10"],
        "sum": ["--fusion.method=sum", "--fusion.weights=[0.2, 0.5, 1]"],
        "tuned": ["--fusion.method=sum", *tune],
        "tuned-rrf": ["--fusion.method=rrf", *tune],
    }.items():
        output = place.folder / "runs" / f"fused-{name}"
        called("fuse", *runs["test" if "tuned" in name else "train"], f"--output={output}", *options)
        found[name] = results(f"{output}.jsonl")
        if name.startswith("tuned"):
            info = json.loads(Path(f"{output}.info.json").read_text())["options"]
            found[f"{name}-weights"] = [info["weights"], info["tuned_recall@2"]]
    output = place.folder / "runs" / "cut"
    called("fuse", "cut", runs["test"][2], "--tune", runs["train"][2], f"--output={output}")
    return {**found, "cut": results(f"{output}.jsonl")}


def answers(place: Place) -> Any:
    """Answers without retrieval, from retrieved passages, by follow-up questions and by a program."""
    model = place.quoting / "model"
    base = [f"--data={place.quoting / 'data'}", f"--model={model}", "--device=cpu"]
    few, bm25 = "--reader.max_new_tokens=6", "--retriever=bm25"
    found = {}
    for name, options in {
        "closed-book": ["direct", few],
        "retrieve": ["direct", few, bm25, "--k=2"],
        "iterative": ["follow-up", few, bm25, "--reader.questions=2"],
        "program": ["dsp", "retrieve-then-read", bm25, "--k=1", "--dsp.calls.max_new_tokens=6"],
    }.items():
        output = place.folder / "runs" / f"answers-{name}"
        called("answer", *options, *base, f"--output={output}")
        found[name] = {"answers": answered(output), "found": results(f"{output}.jsonl")}
    return {**found, "follow-ups": _follow_ups(place)}


def _follow_ups(place: Place) -> Any:
    """The loop of follow-up questions, by a script: what is asked, shown and read."""
    corpus = Corpus.read(place.quoting / "data")

    def reply(prompt: str) -> str:
        return (
            "answer: red"
            if "burned" in prompt
            else f"follow-up: {'rain' if 'mill' in prompt else 'the barn'}"
        )

    reader = IterativeReader(ScriptedWriter(reply), BM25Retriever(corpus), corpus, hops=2)
    read = reader.answer(ASKED)
    return [
        [one.answer, [[*step] for step in one.steps], [[hit.id, hit.score] for hit in one.ranking], one.read]
        for one in read
    ]


def constraint(place: Place) -> Any:
    """Checksums of an index's files, and what may follow every prefix."""
    tokenizer = small_tokenizer(place.data)
    corpus = Corpus.read(place.data)
    found: dict[str, Any] = {}
    codec = Codec(tokenizer)
    for name, texts in {"passages": corpus, "spans": Spans(corpus, 3)}.items():
        for backend in BACKENDS:
            index = build_index(texts, codec, backend=backend)
            folder = place.folder / "index" / f"{name}-{backend}"
            save_index(index, folder)
            every = [*states(index, codec.end)]
            walked = sha256(json.dumps(every).encode()).hexdigest()
            found[f"{name}-{backend}"] = {**saved(folder), "states": walked}
            found.setdefault("first", [row for row in every if len(row[0]) <= 2])
    _, tokenizer = load_language_model(str(place.quoting / "model"), "cpu")
    keys = build_keys(Corpus.read(place.quoting / "data"), tokenizer, KeyOptions("sentence", True))
    return {**found, "keys": list(keys.texts)}


def saved(folder: Path) -> dict[str, str]:
    """File -> checksum, without the manifest."""
    return {
        file.name: sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.suffix != ".json"
    }


def states(index: Any, end: int) -> Iterator[tuple[list[int], list[int], int]]:
    """(prefix, tokens that may follow, passages under it), prefixes in order."""
    waiting: list[tuple[list[int], int]] = [([], index.start())]
    while waiting:
        prefix, state = waiting.pop()
        allowed = index.allowed(np.array([state]))
        yield prefix, allowed.tokens.tolist(), int(index.count(np.array([state]))[0])
        following = zip(allowed.tokens.tolist(), allowed.states.tolist(), strict=True)
        waiting += [([*prefix, token], child) for token, child in following if token != end]


def evaluation(place: Place) -> Any:
    """Measures of a ranking and of chains, and the numbers of a report's tables."""
    found = {}
    for name, options in {
        "ranking": [place.dense],
        "other": ["bm25"],
        "chains": [place.sequence, "--hops.steps=dynamic", "--hops.max=3", "--hops.done_bias=3"],
    }.items():
        place.retrieved(f"measured-{name}", *options)
        found[name] = measures(str(place.folder / "runs" / f"measured-{name}"), place.data, "train")
    runs = [str(place.folder / "runs" / f"measured-{name}.jsonl") for name in ("ranking", "other", "chains")]
    output = place.folder / "runs" / "report"
    called("experiment", *runs, f"--output={output}", "--measures=nDCG@10 RR", "--page=true")
    return {**found, "report": table_numbers(page_text(Path(f"{output}.html")))}


def table_numbers(text: str) -> list[list[str]]:
    """The numeric cells of each row of all tables, without those of the time that a run took; in order."""
    rows = []
    for table in re.findall(r"(?:^\|.*\n)+", re.sub(r"\n\s*\n", "\n", text), re.MULTILINE):
        if "seconds" in table:
            continue
        for line in table.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows.append([cell for cell in cells if re.fullmatch(r"[-+−<]? *\d+\.\d+.*", cell)])
    return sorted(row for row in rows if row)


def explain(place: Place) -> Any:
    """Verdicts, ranks and scores of gold passages, their paths, and the summary of a split."""
    found = {}
    base = [f"--retriever={place.sequence}", f"--data={place.data}", "--split=train", "--device=cpu"]
    asked = [query.id for query in queries()[:12] if len(query.evidence) == 2]
    for query, options in zip(
        asked,
        (
            ["--search.beams=1", "--k=1"],
            ["--hops.steps=dynamic", "--hops.done_bias=-1"],
            ["--search.mode=full"],
        ),
        strict=False,
    ):
        output = place.folder / "runs" / f"explain-{query}"
        called("explain", query, *base, f"--output={output}", *options)
        found[query] = [facts(e) for e in json.loads(Path(f"{output}.json").read_text())]
    output = place.folder / "runs" / "explain-all"
    called("explain", "all", *base, f"--output={output}", "--search.beams=2", "--k=1")
    summary = json.loads(Path(f"{output}.json").read_text())
    return {**found, "all": [summary[key] for key in ("verdicts", "left", "sufficient")]}


def facts(e: dict[str, Any]) -> dict[str, Any]:
    """An explanation's numbers."""
    path = [
        [row[key] for key in ("step", "token", "log_probability", "score", "rank", "fate")]
        for row in e["path"]
    ]
    hits = [[row["id"], row["score"]] for row in e["results"]]
    kept = {key: e[key] for key in ("gold", "verdict", "evidence", "rank", "score", "complete", "tokens")}
    return {**kept, "path": path, "hits": hits}


def training(place: Place) -> Any:
    """Losses per step of each other kind of training."""
    root = place.folder / "training"
    return {
        "chains": _chain_training(place, root / "chains"),
        "spans": _span_training(place, root / "spans"),
        "riches": _riches_training(place, root / "riches"),
        "queries": _query_training(place, root / "queries"),
        "biencoder": _biencoder_training(place, root / "biencoder"),
        "reranker": _reranker_training(place, root / "reranker"),
    }


def _chain_training(place: Place, output: Path) -> Any:
    """A causal model with a teacher."""
    called(*chain_options(place.llama.parent, output, f"--data.teacher={place.dense}"))
    return curve(output, "train_loss", "dev_loss", "dev_recall")


def _span_training(place: Place, output: Path) -> Any:
    """A causal model that learns spans and rescoring beside a prior."""
    words = ["--data.spans.words=3", "--data.spans.drawn=2", "--data.spans.evidence=false"]
    spans = [*words, '--data.prior.retrievers=["bm25"]']
    rescoring = ["--data.rescore.retrievers=[bm25]", "--data.rescore.passages=2", "--data.rescore.tokens=8"]
    called(*chain_options(place.llama.parent, output, *spans, *rescoring, "--trainer.max_epochs=1"))
    return curve(output, "train_loss", "dev_loss", "dev_recall")


def _scratch_training(place: Place, output: Path, config: str, form: str, *more: str) -> Any:
    """An encoder-decoder from scratch whose tokenizer knows a form of words."""
    generator = {
        "class_path": "grls.models.load.generators.ScratchT5",
        "init_args": {**TINY, "data": str(place.data), "texts": [form], "dropout": 0.0},
    }
    layer = place.folder / f"{config}.yaml"
    layer.write_text(json.dumps({"model": {"generator": generator}}), encoding="utf-8")
    few = ["--data.batch_size=4", "--trainer.max_epochs=1", "--model.learning_rate=3e-3", *QUIET]
    layers = [f"--config=configs/{config}.yaml", f"--config={layer}"]
    called("train", config, *layers, f"--output={output}", f"--data.data={place.data}", *few, *more)
    return curve(output, "train_loss", "dev_loss")


def _riches_training(place: Place, output: Path) -> Any:
    form = "question: « » answer: proved\n"
    return _scratch_training(
        place, output, "riches", form, "--data.answer=proved", "--quotes.max_new_tokens=40"
    )


def _query_training(place: Place, output: Path) -> Any:
    return _scratch_training(place, output, "doc2query", "passage: query:")


def _biencoder_training(place: Place, output: Path) -> Any:
    assert place.bert.parent == place.data.parent
    called(*biencoder_options(place.folder, output, "--fit.epochs=1"))
    return [value for _, value in sorted(biencoder_logged(output, "train_loss").items())]


def _reranker_training(place: Place, output: Path) -> Any:
    given = ["--retriever=bm25", f"--output={output}", "--examples.candidates=3"]
    called("ralm", "examples", *reading(place), *given)
    examples = f"{output}.examples.jsonl"
    given = [f"--train={examples}", f"--dev={examples}", f"--data={place.ralm / 'data'}"]
    given += [f"--encoder={place.bert}", "--max_tokens=32", "--fit.epochs=2", "--device=cpu"]
    called("train", "reranker", *given, f"--output={output}")
    return curve(output, "dev_loss")


def tuning(place: Place) -> Any:
    """What dev chooses: weights of priors, of rescoring, where chains end and which is taken."""
    data = [f"--data={place.data}", "--split=train", "--device=cpu"]
    place.dense  # noqa: B018  made before it is named
    hybrid = place.hybrid("tuned", place.spans, {"retriever": "bm25"}, {"retriever": "../dense"})
    grid = ["--grid.k=2", "--grid.prior_weights=[0.5, 2]", "--grid.prior_temperatures=[1, 4]"]
    grid += ["--grid.empty_weights=[0.3]", "--grid.rescore_passages=3", "--grid.rescore_weights=[0.5, 4]"]
    printed = called("tune", hybrid, *data, *grid)
    scores, spec = reached(printed), read_spec(hybrid)
    weights = [[prior[key] for prior in spec["priors"]] for key in ("weight", "temperature")]
    rescore = [spec["search"][key] for key in ("rescore", "rescore_weight")]
    return {
        "hybrid": [scores["priors"], [*weights, spec["empty_weight"]]],
        "rescore": [scores["rescoring"], rescore],
        "dynamic": _tuned_end(place, "far", [2.5, 3], data),
        "dynamic-near": _tuned_end(place, "near", [0, 2.5, 3], data),
    }


def _tuned_end(place: Place, name: str, biases: Sequence[float], data: Sequence[str]) -> list[Any]:
    """Where chains end, by the biases that are tried: 0 is what the folder has."""
    folder = place.folder / f"tuned-chains-{name}"
    hops = {"steps": "dynamic", "max": 4}
    write_spec(folder, "hops", {"retriever": relative(place.sequence, folder), "hops": hops})
    printed = called("tune", folder, *data, f"--grid.done_biases={list(biases)}")
    ended = read_spec(folder)["hops"]
    chosen = [ended.get("done_bias", 0.0), ended.get("choose", "likeliest"), 4]
    return [reached(printed)["chains"], chosen]


RUNS: dict[str, Callable[[Place], Any]] = {
    run.__name__: run
    for run in (
        data_preparation, quickstart, spans, rivals, chains, riches, ralm, fusion, answers, constraint,
        evaluation, explain, training, tuning,
    )
}  # fmt: skip


def write(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for name in names or RUNS:
            freeze(name, RUNS[name](place))
            print(f"wrote {HERE / name}.json")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    write(sys.argv[2:])
