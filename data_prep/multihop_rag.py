"""MultiHop-RAG: question -> two to four news articles, whose source and date the question may ask for.

A passage is a whole article; title, source, date, category, author and address stand in its metadata, for
filters. The makers' own measure looks for the quoted fact in chunks of articles; here the articles are gold,
and the facts stand in the metadata of the question. Questions without evidence (``null_query``) are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_prep import common
from data_prep.hotpotqa_full import spans
from data_prep.raw import find_raw, read_json_list
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.io.progress import counted

CORPUS, QUESTIONS = "corpus.json", "MultiHopRAG.json"
PUBLISHED = {"passages": 609, "questions": 2_556}


def prepare(raw: Path, out: Path) -> None:
    """Prepare MultiHop-RAG, as a test split.

    Args:
        raw: Folder with corpus.json and MultiHopRAG.json.
        out: Folder to write; an earlier one is replaced.
    """
    file = find_raw(raw, CORPUS)
    passages, metadata = [], []
    ids: dict[str, str] = {}
    for n, (label, record) in enumerate(read_json_list(file)):
        text, title, address = (
            common.field(record, key, str, file, label) for key in ("body", "title", "url")
        )
        passages.append(Passage(f"d{n}", " ".join(text.split()), title))
        metadata.append({key: value for key, value in record.items() if key not in ("body", "title")})
        ids.setdefault(address, f"d{n}")
    file = find_raw(raw, QUESTIONS)
    queries = []
    read = 0
    for read, (label, record) in enumerate(read_json_list(file), 1):
        text, answer, kind = (
            common.field(record, key, str, file, label) for key in ("query", "answer", "question_type")
        )
        listed = record.get("evidence_list")
        if not isinstance(listed, list):
            raise common.fault(f"expected 'evidence_list' to be a list, got {listed!r:.80}.", file, label)
        evidence: dict[str, None] = {}
        facts: list[Any] = []
        for entry in listed:
            address = common.field(entry, "url", str, file, label)
            if address not in ids:
                raise common.fault(f"the article {address!r} is not in {CORPUS}.", file, label)
            evidence[ids[address]] = None
            facts.append(entry.get("fact"))
        if evidence:
            stored = common.metadata(type=kind, answer=answer, any_order=True, facts=facts)
            queries.append(Query(f"q{read}", " ".join(text.split()), tuple(evidence), spans(answer), stored))
    if left_out := read - len(queries):
        print(f"{'left out':<20} {counted(left_out, 'question')} without evidence")
    corpus = Corpus.from_passages(passages, CORPUS, metadata)
    numbers = common.finish(out, common.dataset(corpus, {"test": queries}))
    common.compare(numbers, PUBLISHED, questions=read)
