"""How often `grls fit --writer` chooses rightly whether to take what it has trained, with a good writer.

    python -m benchmarks.written --data '[data/facts]' --seeds '[0, 1, 2]'

The writers that run on a small machine write poorly, so people's questions stand in for those of a good one.
A server on this machine answers as an OpenAI-compatible one. Asked for a question of a passage, it gives one
of the set's training questions that have this passage among their gold ones (of two passages: both), and
where there is none an empty answer, which `grls fit` drops. `grls fit` sees the passages and these answers
alone. The two between which it chose then answer the questions of ``--split``. The choice is right if the
other one is not better by more than one standard error (paired).
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from typing import Any

from jsonargparse import auto_cli

import grls
from benchmarks.common import machine, print_table
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.evaluation.measures import query_values
from grls.runs.run import Run
from grls.train.doc2query.questions import QuestionPrompt
from grls.tune.search import paired_error

MEASURE, ORDER = "R@5", "nDCG@10"
WRITTEN = "written questions"
_PASSAGE = re.compile(r"^Passage(?: \d)?: ", re.MULTILINE)


@contextmanager
def stand_in(data: str) -> Iterator[str]:
    """The address of a server that answers with training questions of a data set."""
    corpus = Corpus.read(data)
    queries, qrels = read_split(data, "train", corpus)
    asking, known = defaultdict[str, set[str]](set), dict[str, set[str]]()
    for query in queries:
        for gold in qrels[query.id]:
            asking[gold].add(query.text)
    for passage in corpus:
        text = QuestionPrompt(True).turns([passage])[-1]["content"]
        known.setdefault(_PASSAGE.sub("", text), set()).update(asking[passage.id])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            _, *passages = _PASSAGE.split(body["messages"][-1]["content"])
            questions = sorted(set.intersection(*(known[passage.strip("\n")] for passage in passages)))
            answer = questions[body["seed"] % len(questions)] if questions else ""
            choice = {"message": {"content": answer}, "finish_reason": "stop"}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [choice]}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def measured(
    data: str, split: str, gold: bool, seed: int, output: Path, fit: dict[str, Any],
    plain_values: dict[str, Any],
) -> tuple[str, ...]:  # fmt: skip
    """The row of a run; ``plain_values`` are those of untrained candidates, which all seeds share."""
    passages, fitted, corpus = output / "passages", output / "fitted", Corpus.read(data)
    if gold:
        judged = [read_split(data, name)[1] for name in ("train", "dev", "test")]
        named = {name for qrels in judged for grades in qrels.values() for name in grades}
        corpus = Corpus.from_passages([passage for passage in corpus if passage.id in named])
    passages.mkdir(parents=True, exist_ok=True)
    corpus.write(passages / "corpus.jsonl")
    with stand_in(data) as address:
        writer = {"writer": address, "writer_model": "stand-in"}
        grls.fit(passages, output=fitted, seed=seed, **{**writer, **fit})
    told = json.loads((fitted / "fit.json").read_text(encoding="utf-8"))
    metrics, counts = told["metrics"], told["data"]["queries"]
    name = f"{Path(data).name}, {seed}"
    if told["data"]["pseudo"]["dev"] != WRITTEN:
        return (name, "no questions", *[""] * 8)
    dev = {
        one: (values[f"{WRITTEN} {MEASURE}"], values[f"{WRITTEN} {ORDER}"]) for one, values in metrics.items()
    }
    if not any("dense" in one for one in dev) or not any(" + " in one for one in dev):
        return (name, "nothing trained", *[""] * 8)
    plain = [one for one in dev if "dense" not in one and " + " in one][-1]
    taught = max((one for one in dev if "dense" in one), key=dev.__getitem__)
    queries, qrels = read_split(data, split)
    values = dict(plain_values)
    for one in {plain, taught} - values.keys():
        folder = "-".join(("fusion", *one.split(" + "))) if " + " in one else one
        found = grls.load(fitted / "members" / folder).search([query.text for query in queries], k=10)
        ids = {query.id: [hit.id for hit in hits] for query, hits in zip(queries, found, strict=True)}
        values[one] = query_values([MEASURE], ids, {query.id: qrels[query.id] for query in queries})[MEASURE]
    plain_values[plain] = values[plain]
    gain, error = fmean(values[taught]) - fmean(values[plain]), paired_error(values[taught], values[plain])
    right = gain >= -error if told["kept"] == taught else gain <= error
    return (
        name, f"{counts['train']:,}, {counts['dev']:,}", taught,
        *(f"{100 * dev[one][0]:.1f}" for one in (plain, taught)), masked(fitted),
        "trained" if told["kept"] == taught else "untrained",
        *(f"{100 * fmean(values[one]):.1f}" for one in (plain, taught)),
        f"{100 * gain:+.1f} ({100 * error:.1f}): {'right' if right else 'wrong'}",
    )  # fmt: skip


def masked(fitted: Path) -> str:
    """What the encoder finds of masked names, before and after training."""
    if not (fitted / "data" / "qrels" / "links.tsv").is_file():
        return ""
    queries, qrels = read_split(str(fitted / "data"), "links")
    shares = []
    for name in ("base", "dense"):
        run = Run.load(fitted / "runs" / "links" / f"{name}.jsonl").rankings
        ids = {query.id: [hit.id for hit in run.get(query.id, ())] for query in queries}
        values = query_values([MEASURE], ids, {query.id: qrels[query.id] for query in queries})[MEASURE]
        shares.append(f"{100 * fmean(values):.1f}")
    return ", ".join(shares)


def main(
    data: Sequence[str],
    split: str = "test",
    gold: bool = False,
    seeds: Sequence[int] = (0, 1, 2),
    output: str = "runs/written",
    fit: dict[str, Any] | None = None,
) -> None:
    """Measure.

    Args:
        data: Data set folders.
        split: Split of the questions that are asked.
        gold: Only the passages that are gold of a question: for sets with few, of which too few questions
            would pass.
        seeds: Seeds of `grls fit`.
        output: Folder for all runs; what another call has made goes on.
        fit: Further options of `grls fit`; a ``writer`` among them takes the place of the stand-in.
    """
    heads = (
        "set, seed", "questions that train, that choose", "the trained one", "untrained, dev", "trained, dev",
        "masked names", "chosen", f"untrained, {split}", f"trained, {split}", "difference (its error)",
    )  # fmt: skip
    rows = []
    for folder in data:
        known: dict[str, Any] = {}
        for seed in seeds:
            place = Path(output) / f"{Path(folder).name}-{seed}"
            rows.append(measured(folder, split, gold, seed, place, fit or {"generator": None}, known))
    print_table(f"{MEASURE}; {machine()}", heads, rows)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
