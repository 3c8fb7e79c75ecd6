"""Wrong values for every argument of every public call: each is refused in our words, or plainly works.

3,000 calls are drawn with a seed: one argument has a value of the zoo, all others are right. What would train
or upload is cut short behind the checks.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
from encoder_models import tiny_colbert, tiny_splade
from small_data import of_spans

import grls
from grls.errors import GrlsError
from grls.evaluation.measures import REGISTERED, register_measure
from grls.retrieve.build import Building, build
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.stop import RULES, Never, register_stop
from grls.retrieve.registry import Opening
from grls.runs.run import Run

CALLS = 3000
TEXTS = ["otters eat fish", "herons eat frogs", "a lynx is quick"]
QUERIES = {"q": "what do otters eat ?", "r": "do herons eat ?", "s": "what is quick ?"}
GOLD = {"q": ["0"], "r": ["1"], "s": ["2"]}

ZOO: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "none"),
    "True": (lambda: True, "flag"),
    "np.bool_": (lambda: np.bool_(True), "flag"),
    "-1": (lambda: -1, "whole"),
    "0": (lambda: 0, "whole"),
    "10**30": (lambda: 10**30, ""),
    "np.int64": (lambda: np.int64(2), "whole"),
    "np.float32": (lambda: np.float32(1.5), "number"),
    "nan": (lambda: float("nan"), ""),
    "np.nan": (lambda: np.float64("nan"), ""),
    "inf": (lambda: float("inf"), ""),
    "complex": (lambda: 1j, ""),
    "Decimal": (lambda: Decimal(1), ""),
    "empty": (lambda: "", "text"),
    "text": (lambda: "zzz", "text"),
    "np.str_": (lambda: np.str_("zzz"), "text"),
    "surrogate": (lambda: "\ud800", ""),
    "NUL": (lambda: "\0", "text"),
    "long": (lambda: "x" * 300, "text"),
    "longer": (lambda: "x/" * 5000, "text"),
    "digits": (lambda: "3", "text"),
    "bytes": (lambda: b"otter", ""),
    "Path": (lambda: Path("zzz"), "path"),
    "long Path": (lambda: Path("x" * 300), "path"),
    "list": (lambda: [], "list"),
    "texts": (lambda: ["zzz"], "list"),
    "numbers": (lambda: [1, 2], "list"),
    "None in a list": (lambda: [None], "list"),
    "lists": (lambda: [["a"]], "list"),
    "surrogates": (lambda: ["\ud800"], "list"),
    "tuple": (lambda: ("a", 1), "list"),
    "set": (lambda: {"zzz"}, "list"),
    "generator": (lambda: (text for text in ("a", "b")), "list"),
    "range": (lambda: range(2), "list"),
    "array": (lambda: np.array([1.0, 2.0]), "list"),
    "array of texts": (lambda: np.array(["a", "b"]), "list"),
    "matrix": (lambda: np.zeros((2, 2)), "list"),
    "array without axes": (lambda: np.array(3), ""),
    "series": (lambda: pd.Series(["a", "b"]), "list"),
    "frame": (lambda: pd.DataFrame({"a": ["x"]}), ""),
    "frame of queries": (lambda: pd.DataFrame({"qid": ["q"], "query": ["otters"]}), ""),
    "polars": (lambda: pl.DataFrame({"a": ["x"]}), ""),
    "lazy frame": (lambda: pl.LazyFrame({"text": ["x"]}), ""),
    "dict": (dict, "dict"),
    "dict of texts": (lambda: {"zzz": "x"}, "dict"),
    "dict of numbers": (lambda: {1: 2}, "dict"),
    "query": (lambda: grls.Query("1", "otters"), "query"),
    "broken query": (lambda: grls.Query(1, None), "query"),  # type: ignore[arg-type]
    "object": (object, ""),
    "class": (lambda: int, "function"),
    "function": (lambda: print, "function"),
    "module": (lambda: np, ""),
    "open file": (lambda: Path(__file__).open(encoding="utf-8"), ""),  # noqa: SIM115
}
"""Name -> a value, and the form that it has: a value of another form must be refused."""


class Call(NamedTuple):
    """A public call.

    Attributes:
        call: The call, with all arguments by name.
        right: Arguments that work.
        forms: Argument -> the forms of values that may work; ``any``: all may.
    """

    call: Callable[..., Any]
    right: dict[str, Any]
    forms: dict[str, str]


class ReachedError(Exception):
    """The checks are passed; what follows would train, or upload."""


HOPS = {
    **dict.fromkeys(("max", "chains", "branch", "evidence"), "whole none"),
    **dict.fromkeys(("done_bias", "temperature"), "whole number none"),
    **dict.fromkeys(("repeat", "sets", "pool", "done"), "flag"),
    **dict.fromkeys(("steps", "choose", "stop"), "text none"), "onward": "list none",
}  # fmt: skip
TRIED = (
    "prior_weights", "rescore_weights", "cross_encoder_passages", "done_biases", "hops", "hop_temperatures",
)  # fmt: skip
FOLDER, OUTPUT = "text path", "text path none"


def table(kinds: Path, folder: Path) -> dict[str, Call]:
    """All public calls, over small retrievers."""
    bm25 = grls.BM25(TEXTS)
    retrievers = {
        name: grls.load(kinds / name, device="cpu")
        for name in (
            "bm25", "dense", "generative", "hybrid", "hops", "ranked", "fusion", "rescored",
            "chains",
        )
    }  # fmt: skip
    dense, generator = retrievers["dense"], retrievers["generative"]
    encoder, writer = grls.BiEncoder(kinds / "bert"), grls.Generator(kinds / "generative" / "model")
    spans = grls.Generator(of_spans(kinds / "generative" / "model", folder / "writes-spans", 3))
    built = {"spans": spans.index(kinds / "data", device="cpu")}
    for kind, model in {"sparse": tiny_splade(folder), "multi-vector": tiny_colbert(folder)}.items():
        build(str(model), str(kinds / "data"), Building(str(folder / kind), kind, device="cpu"))
        built[kind] = grls.load(folder / kind, device="cpu")
    retrievers |= built
    passages = {"corpus": TEXTS}
    learned = {**passages, "queries": QUERIES, "gold": GOLD}
    data = dict.fromkeys((*learned, "dev"), "any")
    training = {"output": OUTPUT, "recipe": FOLDER, "resume": "flag", "max_seconds": "whole number none",
                "meter": "function none"}  # fmt: skip
    search = {"queries": "any", "k": "whole", "where": "text none", "allow": "list none"}
    calls = {
        "load": Call(
            grls.load,
            {"name": kinds / "bm25"},
            {"name": FOLDER, "device": "text", "precision": "text", "revision": "text none",
             "truncate_queries": "flag"},
        ),
        "check_folder": Call(
            grls.check_folder, {"folder": kinds / "bm25"}, {"folder": FOLDER, "device": "text"}
        ),
        "BM25": Call(
            grls.BM25, passages,
            {"corpus": "any", "k1": "whole number", "b": "whole number", "method": "text", "analyzer": "none",
             "output": OUTPUT},
        ),
        "BiEncoder": Call(
            grls.BiEncoder, {"name": kinds / "bert"},
            {"name": FOLDER, "kind": "text", "max_tokens": "whole none", "similarity": "text none"},
        ),
        "BiEncoder.fit": Call(
            encoder.fit, learned,
            {**data, **training, "negatives": FOLDER, "teacher": OUTPUT, "epochs": "whole",
             "done": "flag", "strategy": "text", "device": "text"},
        ),
        "BiEncoder.index": Call(
            encoder.index, {**passages, "device": "cpu"},
            {"corpus": "any", "output": OUTPUT, "batch_size": "whole", "device": "text"},
        ),
        "Generator": Call(
            grls.Generator, {"name": kinds / "generative" / "model"}, {"name": FOLDER, "layers": "whole none"}
        ),
        "Generator.fit": Call(
            writer.fit, learned,
            {**data, **training, "teacher": OUTPUT, "options": "dict none"},
        ),
        "Generator.index": Call(
            writer.index, {**passages, "device": "cpu"},
            {"corpus": "any", "output": OUTPUT, "device": "text", "backend": "text", "form": "text",
             "memory": "text", "passage": "whole none", "query": "whole none",
             "input": "whole none", "evidence": "whole none"},
        ),
        "fuse": Call(
            grls.fuse, {"searchers": [bm25, grls.BM25(TEXTS, k1=1)], "method": "rrf"},
            {"searchers": "list", "method": "text", "weights": "list none", "depth": "whole none",
             "output": OUTPUT},
        ),
        "experiment": Call(
            grls.experiment, {"systems": {"bm25": bm25}, "queries": QUERIES, "gold": GOLD},
            {"systems": "dict", "queries": "any", "gold": "any", "measures": "text list",
             "baseline": "text none", "k": "whole none"},
        ),
        "fit": Call(
            grls.fit, {**learned, "device": "cpu"},
            {**data, "test": "any", "output": OUTPUT, "budget": "text none", "biencoder": "text none",
             "generator": "text none", "k": "whole", "seed": "whole",
             "device": "text", "precision": "text", "train_split": "text", "dev_split": "text",
             "test_split": "text", "measure": "text none", "prefer": "text", "keep": "text none"},
        ),
        "Corpus.read": Call(grls.Corpus.read, {"path": kinds / "data"}, {"path": FOLDER}),
        "Corpus.from_passages": Call(
            grls.Corpus.from_passages, {"passages": [grls.Passage("a", "otters")]},
            {"passages": "any", "source": "text", "metadata": "none"},
        ),
        "Corpus.extended": Call(bm25.corpus.extended, {}, {"passages": ""}),
        "Run.load": Call(Run.load, {}, {"path": FOLDER}),
        "HopOptions": Call(HopOptions, {}, {**HOPS, "stop": "text none"}),
        "Opening": Call(
            Opening, {}, {"device": "text", "precision": "text", "truncate_queries": "flag"}
        ),
        "register_measure": Call(
            register_measure,
            {"name": "wrong", "measure": lambda *_: 0.0},
            {"name": "text", "measure": "function"},
        ),
        "register_stop": Call(register_stop, {"name": "wrong", "rule": Never}, {"name": "text", "rule": ""}),
        "with_priors": Call(
            lambda priors=dense, **more: generator.with_priors(priors, **more), {},
            {"priors": FOLDER, "weights": "list none", "output": OUTPUT, "normalized": "flag"},
        ),
        "rescored": Call(
            dense.rescored, {"model": kinds / "encoder"},
            {"model": FOLDER, "passages": "whole", "weight": "whole number none", "output": OUTPUT},
        ),
        "tune": Call(
            retrievers["fusion"].tune,
            {"queries": QUERIES, "gold": {name: ["otter-calm"] for name in QUERIES}},
            {"queries": "any", "gold": "any", "k": "whole", "onward": "flag", "rescore_passages": "whole",
             **dict.fromkeys(TRIED, "list none")},
        ),
        "save": Call(bm25.save, {"folder": folder / "saved"}, {"folder": FOLDER}),
        "push_to_hub": Call(
            bm25.push_to_hub, {"name": "user/name"},
            {"name": "text", "private": "flag", "license": "text none", "languages": "list",
             "base_models": "list", "datasets": "list"},
        ),
        "asearch": Call(
            lambda **named: asyncio.run(bm25.asearch(**named)), {"queries": TEXTS}, search
        ),
        "stream": Call(
            lambda **named: list(retrievers["hops"].stream(**named)), {"query": "otters"},
            {"query": "text query", "where": "text none", "allow": "list none"},
        ),
    }  # fmt: skip
    for name, one in {"bm25": bm25, "dense": dense, **built}.items():
        gold = one.corpus[0].id
        calls[f"hops {name}"] = Call(one.hops, {"steps": "fixed", "max": 2}, {**HOPS, "output": OUTPUT})
        calls[f"updated {name}"] = Call(
            one.updated, {"add": ["otters dive"], "remove": [gold]},
            {"add": "any", "remove": "list none", "batch_size": "whole", "output": OUTPUT},
        )  # fmt: skip
        calls[f"explain {name}"] = Call(
            one.explain, {"query": "is the otter calm ?", "gold": gold},
            {"query": "text query", "gold": "text whole list none", "depth": "whole"},
        )  # fmt: skip
    for name, one in retrievers.items():
        calls[f"search {name}"] = Call(one.search, {"queries": ["is the otter calm ?"]}, search)
    return calls


@pytest.fixture(scope="module")
def calls(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Call]]:
    """The calls. They run in a folder of their own, for a text may be the name of an output."""
    folder = tmp_path_factory.mktemp("wrong")

    def reached(*_: Any, **__: Any) -> None:
        raise ReachedError

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("grls.train.biencoder.run.run_biencoder", reached)
        patch.setattr("grls.train.training.train", reached)
        patch.setattr("grls.fitting.run.fit_dataset", reached)
        patch.setattr("grls.tune.run.tune_folder", reached)
        patch.setattr("grls.retrieve.hub.upload", reached)
        patch.setattr("grls.evaluation.measures.REGISTERED", dict(REGISTERED))
        patch.setattr("grls.retrieve.hops.stop.RULES", dict(RULES))
        yield table(kinds, folder)


def tried(call: Call, argument: str, value: Any) -> str:
    """What a call says to a value of an argument; empty: it takes it."""
    try:
        call.call(**{**call.right, argument: value})
    except ReachedError:
        pass
    except GrlsError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("error::polars.exceptions.PerformanceWarning")
def test_wrong_calls(calls: dict[str, Call]) -> None:
    draw = random.Random(0)
    arguments = [(name, argument) for name, call in calls.items() for argument in call.forms]
    faults: Counter[str] = Counter()
    for _ in range(CALLS):
        (name, argument), value = draw.choice(arguments), draw.choice(list(ZOO))
        make, form = ZOO[value]
        what = f"{name}({argument}={value})"
        try:
            given = make()
            said = tried(calls[name], argument, given)
        except Exception as error:
            faults[f"{what}: raw {type(error).__name__}: {error}"[:300]] += 1
            continue
        forms = calls[name].forms[argument].split()
        named = argument in said or (isinstance(given, str | Path) and str(given) and str(given) in said)
        # gold that a corpus lacks is left out with a warning, and its queries with it
        named = named or (argument == "corpus" and said.startswith("queries: there is one training query"))
        if said and not named:
            faults[f"{what}: does not name the argument: {said}"[:300]] += 1
        elif (
            not said
            and "any" not in forms
            and form not in forms
            and not (form == "whole" and "number" in forms)
        ):
            faults[f"{what}: is taken"] += 1
    assert not faults, "\n".join(sorted(faults))


NUMBERS: list[tuple[str, Callable[[grls.Searcher, grls.Searcher, Path, Any, Any], Any]]] = [
    ("hops", lambda dense, generator, folder, whole, part: dense.hops(max=whole(2), temperature=part(0.5))),
    ("rescored", lambda dense, generator, folder, whole, part: dense.rescored(
        folder / "encoder", passages=whole(2), weight=part(0.5))),
    ("fuse", lambda dense, generator, folder, whole, part: grls.fuse(
        [dense, "bm25"], method="sum", depth=whole(5), weights=np.array([0.5, part(2)]))),
    ("with_priors", lambda dense, generator, folder, whole, part: generator.with_priors(
        dense, weights=[part(0.5)])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_numbers_of_numpy_are_those_of_python(
    kinds: Path,
    tmp_path: Path,
    name: str,
    call: Callable[[grls.Searcher, grls.Searcher, Path, Any, Any], Any],
) -> None:
    dense, generator = (grls.load(kinds / kind, device="cpu") for kind in ("dense", "generative"))
    plain = call(dense, generator, kinds, int, float)
    other = call(dense, generator, kinds, np.int64, np.float32)
    saved = other.save(tmp_path / "other"), plain.save(tmp_path / "plain")
    assert (saved[0] / "grls.json").read_text() == (saved[1] / "grls.json").read_text()
    for k in (np.int64(2), np.uint8(2), pd.Series([2])[0]):
        assert other.search("is the otter calm ?", k=k) == plain.search("is the otter calm ?", k=2)
