"""A small data set of RuleTaker-Open questions, and runs over it."""

import json
import re
from html import unescape
from pathlib import Path

from run_files import write_jsonl_run

from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Chain, Hit, Passage, Query
from grls.runs.portions import RunInfo, fingerprint_queries, write_info
from grls.runs.trec import chain_ranking, write_run

PASSAGES = [
    Passage("f1", "anna is kind ."),
    Passage("f2", "bob is calm ."),
    Passage("r1", "if someone is kind then they are calm ."),
    Passage("r2", "if someone is calm then they are big ."),
    Passage("odd", "<script>alert(1)</script> | *odd*"),
]
ANNA = json.dumps({"start": ["f1"], "goal": "anna is big ."})
BOB = json.dumps({"start": ["f2"], "goal": "bob is big ."})
QUERIES = [
    Query("t1", "train"),
    Query("q1", "anna is kind . why is anna big ?", ("f1", "r1", "r2"), (), ANNA),
    Query("q2", "bob is calm . why is bob big ?", ("f2", "r2"), (), BOB),
]
QRELS = {"train": {"t1": {"f1": 1}}, "test": {"q1": {"f1": 1, "r1": 1, "r2": 1}, "q2": {"f2": 1, "r2": 1}}}
GOOD = {"q1": ["f1", "r1", "r2"], "q2": ["f2", "r2"]}
POOR = {"q1": ["f1", "r2"], "q2": ["odd", "r2"]}


def dataset(folder: Path, passages=PASSAGES, queries=QUERIES) -> Path:
    write_dataset(folder, passages, queries, QRELS)
    return folder


def write(
    output: Path, folder: Path, found, name="run", system="generator", steps="dynamic", manifest=True, **info
):
    """``output.jsonl``, ``output.trec`` and, where asked for, the manifest; returns the JSONL."""
    corpus = Corpus.read(folder)
    queries, _ = read_split(folder, "test", corpus)
    lists = {q: tuple(Hit(i, -1.0 - n) for n, i in enumerate(ids)) for q, ids in found.items()}
    chains = {q: Chain(hits, -1.0, True) for q, hits in lists.items()} if steps == "dynamic" else None
    rankings = {q: chain_ranking(Chain(hits, -1.0, True)) for q, hits in lists.items()}
    write_jsonl_run(f"{output}.jsonl", queries, corpus, "renormalized", rankings, chains)
    write_run(f"{output}.trec", rankings)
    if manifest:
        facts = {"corpus": corpus.fingerprint, "queries": fingerprint_queries(queries), "data": str(folder)}
        facts |= {"split": "test", "score_mode": "renormalized", "seconds": 4.0, "options": {"k": 3}}
        write_info(output, RunInfo(system=system, name=name, steps=steps, **(facts | info)))
    return f"{output}.jsonl"


def page_text(file: Path) -> str:
    """The texts of a page; a row of a table is a line ``| a | b |``, as a wide screen shows it."""
    html = re.sub(r'<(style|svg|span class="narrow").*?</\w+>', "", file.read_text(), flags=re.DOTALL)
    html = re.sub(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", r"| \1 ", html, flags=re.DOTALL).replace("</tr>", "|")
    return unescape(re.sub(r"<[^>]+>", "", html)).replace("\u00a0", " ")
