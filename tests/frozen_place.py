"""The folders that the frozen runs share, calling a command, and reading what it wrote."""

import json
import re
import sys
from contextlib import chdir, redirect_stdout
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import torch

sys.path += [str(Path(__file__).parent / "helpers")]  # where helpers are

from composite_specs import write_spec
from llama_small import write_llama
from quoting_model import quoting
from ralm_helpers import PASSAGES, TEXT, write_model
from small_data import small_retriever, tiny_bert, write_small
from train_helpers import logged

from grls.cli import main
from grls.data.corpus import Corpus
from grls.models.biencoder import BiEncoderModel
from grls.models.head import RescoreInput
from grls.models.load.generators import CausalLM
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.spec import relative

ROOT = Path(__file__).parents[1]


class Place:
    """A folder with what the runs share; each part is made when it is first asked for."""

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def data(self) -> Path:
        """Ten passages; 12 train, 2 dev and 2 test queries."""
        return write_small(self.folder / "data")

    @cached_property
    def bert(self) -> Path:
        torch.manual_seed(0)
        return tiny_bert(self.folder / "bert")

    @cached_property
    def llama(self) -> Path:
        return write_llama(self.folder / "llama", self.data)

    @cached_property
    def dense(self) -> Path:
        """A bi-encoder's folder."""
        encoder = BiEncoderModel.load(str(self.bert), device="cpu", similarity="dot")
        DenseRetriever.assemble(encoder, Corpus.read(self.data)).save_pretrained(self.folder / "dense")
        return self.folder / "dense"

    @cached_property
    def dense_done(self) -> Path:
        """A bi-encoder's folder with an embedding of DONE."""
        BiEncoderModel.load(str(self.bert), device="cpu", similarity="dot").save(self.folder / "bert-done")
        made = ["index", f"{self.folder / 'bert-done'}", f"--corpus={self.data}", "--device=cpu"]
        called(*made, f"--output={self.folder / 'dense-done'}")
        return self.folder / "dense-done"

    @cached_property
    def sequence(self) -> Path:
        """The folder of an encoder-decoder."""
        small_retriever(self.data).save_pretrained(self.folder / "sequence")
        return self.folder / "sequence"

    @cached_property
    def spans(self) -> Path:
        """The folder of a causal model that begins a passage at any word, and rescores."""
        loaded = CausalLM(str(self.llama)).load()
        GenerativeRetriever.assemble(
            loaded.model.eval(),
            loaded.tokenizer,
            Corpus.read(self.data),
            rescore_input=RescoreInput(4),
            span_words=3,
        ).save_pretrained(self.folder / "spans")
        return self.folder / "spans"

    @cached_property
    def quoting(self) -> Path:
        """Three passages in ``data``, and in ``model`` one that learned to quote them."""
        return quoting(self.folder / "quoting")

    @cached_property
    def ralm(self) -> Path:
        """A text, a corpus and a random causal model."""
        folder = self.folder / "ralm"
        write_model(folder / "model")
        Corpus.from_passages(PASSAGES).write(folder / "data" / "corpus.jsonl")
        (folder / "text.txt").write_text(TEXT, encoding="utf-8")
        return folder

    def hybrid(self, name: str, generator: Path, *priors: dict[str, Any], **options: Any) -> str:
        """A folder of a generator with priors."""
        folder = self.folder / f"hybrid-{name}"
        named = {"generator": relative(generator, folder), "priors": list(priors)}
        write_spec(folder, "hybrid", named | options)
        return str(folder)

    def retrieved(
        self, name: str, retriever: str | Path, *options: str, split: str = "train"
    ) -> dict[str, Any]:
        """What is retrieved for the queries of a split."""
        output = self.folder / "runs" / name
        given = [f"--data={self.data}", f"--split={split}", f"--output={output}", "--device=cpu"]
        called("retrieve", retriever, *given, *options)
        return results(f"{output}.jsonl")


def called(*arguments: str | Path) -> str:
    """Run a command; what it printed."""
    printed = StringIO()
    with chdir(ROOT), redirect_stdout(printed):
        assert main([str(argument) for argument in arguments]) == 0
    return printed.getvalue()


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def results(path: str) -> dict[str, Any]:
    """Query id -> hits, and the chain where there is one."""
    found: dict[str, Any] = {}
    for record in lines(path):
        found[record["query_id"]] = {"hits": [[hit["id"], hit["score"]] for hit in record["hits"]]}
        if "chain" in record:
            chain = record["chain"]
            hops = [[hop["id"], hop["score"]] for hop in chain["hops"]]
            found[record["query_id"]]["chain"] = [chain["done"], chain["score"], hops]
    return found


def curve(output: Path, *names: str) -> dict[str, list[float]]:
    """The values of a training's log, by step."""
    return {name: [value for _, value in sorted(logged(output, name).items())] for name in names}


LATER = ("hops", "by_type", "f1_known_number")
"""Sections and measures of a report that were added after its values were frozen."""


def measures(run: str, data: Path, split: str) -> dict[str, dict[str, Any]]:
    """Section -> measure -> value."""
    output = f"{run}.metrics.json"
    called("evaluate", f"{run}.jsonl", f"--data={data}", f"--split={split}", f"--output={output}")
    report = json.loads(Path(output).read_text())
    sections = {name: some for name, some in report.items() if isinstance(some, dict) and name not in LATER}
    kept = {
        name: {key: value for key, value in some.items() if key not in LATER}
        for name, some in sections.items()
    }
    return {name: some for name, some in kept.items() if some}


def reached(printed: str) -> dict[str, float]:
    """Step -> the measure (%) that tuning printed for it."""
    return {
        step: float(value) for step, value in re.findall(r"^(\w+): .* -> ([0-9.]+)", printed, re.MULTILINE)
    }


def answered(output: Path) -> dict[str, Any]:
    """Query id -> answer, thoughts and quotes with their passages."""
    return {
        record["query_id"]: {
            "answer": record["answer"],
            "pieces": [piece["text"] for piece in record["pieces"]],
            "quotes": [[quote["text"], quote["passages"]] for quote in record["quotes"]],
        }
        for record in lines(f"{output}.answers.jsonl")
    }
