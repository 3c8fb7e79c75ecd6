"""A data set with perturbed queries: what people write in place of a tidy question.

    python -m benchmarks.perturbed --data data/twowiki --kind typo --output data/twowiki-typo

To train on, perturbed training queries stand beside the tidy ones. To measure what retrievers lose,
``--split test --seed 0`` puts them in place of those of a split: `grls experiment` then compares both data
sets, of three seeds (docs/results/twowiki.md).

A perturbation depends on its kind, the seed, the id of the query and, for ``alias``, the corpus, so the same
seed gives the same bytes on every machine. Kinds:

- ``typo``: a fifth of the words with four letters or more, and at least one, have two letters swapped, a
  letter dropped or a letter doubled.
- ``order``: the words in another order.
- ``case``: all in capitals or all in small letters.
- ``synonym``: words of :data:`SYNONYMS` are replaced.
- ``alias``: a title of the corpus is replaced by what the first sentence of its passage calls it (``X is a
  1939 film directed by Y.``: ``a 1939 film directed by Y``), or loses a letter where no sentence tells.
- ``language``: a translation of the query from its metadata (``"translations": {"de": "…"}``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Literal

from jsonargparse import auto_cli

from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries, write_dataset
from grls.data.links import Naming
from grls.data.sentences import sentences
from grls.data.types import Query

Perturbation = Literal["typo", "order", "case", "synonym", "alias", "language"]

_SHARE = 0.2
_WORD = re.compile(r"[^\W\d_]{4,}")
_DESCRIPTION = re.compile(r"\b(?:is|are|was|were)\s+((?:an?|the|one)\s[^,;()]*\w)")

SYNONYMS = {
    "actor": "performer", "area": "region", "author": "writer", "band": "group", "began": "started",
    "big": "large", "birthplace": "place of birth", "born": "given birth to", "built": "constructed",
    "buy": "purchase", "cause": "reason", "child": "kid", "city": "town", "company": "firm",
    "country": "nation", "created": "made", "creator": "maker", "died": "passed away",
    "director": "filmmaker", "doctor": "physician", "famous": "well-known", "father": "dad",
    "film": "movie", "find": "locate", "first": "earliest", "founded": "established", "help": "assist",
    "husband": "spouse", "kind": "sort", "known": "recognised", "last": "final", "leader": "head",
    "located": "situated", "main": "chief", "maker": "producer", "married": "wed", "mother": "mum",
    "movie": "film", "nationality": "citizenship", "need": "require", "older": "elder",
    "owner": "proprietor", "part": "piece", "people": "persons", "released": "published",
    "river": "stream", "show": "programme", "singer": "vocalist", "small": "little", "song": "track",
    "start": "begin", "studied": "learned", "use": "employ", "war": "conflict", "wife": "spouse",
    "win": "gain", "work": "labour", "works": "labours", "wrote": "penned",
}  # fmt: skip
"""Word, in small letters -> a word or phrase of about the same meaning."""


def perturbed(query: Query, kind: Perturbation, seed: int, corpus: Corpus) -> Query | None:
    """None: its metadata have no translation, or the corpus no titles."""
    random = Random(f"{seed} {kind} {query.id}")
    if kind == "language":
        translations = json.loads(query.metadata).get("translations")
        if not isinstance(translations, dict) or not translations:
            return None
        return query._replace(text=str(translations[random.choice(sorted(translations))]))
    if kind == "alias":
        return _without_titles(query, corpus, random) if corpus.links() else None
    if kind == "typo":
        places = [match.span() for match in _WORD.finditer(query.text)]
        chosen = random.sample(places, min(len(places), max(1, round(_SHARE * len(places)))))
        text = query.text
        for start, end in sorted(chosen, reverse=True):  # from behind, so that earlier places stay right
            n = random.randrange(start, end - 1)
            a, b = text[n], text[n + 1]
            edits = (b if a == b else b + a, b, a + a + b)  # swapped (equal ones: dropped), dropped, doubled
            text = text[:n] + random.choice(edits) + text[n + 2 :]
    elif kind == "order":
        words, before = query.text.split(), query.text.split()
        while words == before and len({*words}) > 1:
            random.shuffle(words)
        text = " ".join(words)
    elif kind == "case":
        texts = query.text.upper(), query.text.lower()
        first = random.random() >= 0.5
        text = texts[first] if texts[first] != query.text else texts[not first]
    else:
        text = re.sub(r"\w+", lambda word: SYNONYMS.get(word[0].lower(), word[0]), query.text)
    return query._replace(text=text)


def _without_titles(query: Query, corpus: Corpus, random: Random) -> Query:
    """Descriptions take the place of titles; a title that nothing describes loses a letter."""
    places: dict[tuple[int, int], Naming] = {}
    for name in corpus.links().in_text(query.text):
        words = r"[\W_]*".join(map(re.escape, name.words.split()))
        whole = [*re.finditer(rf"(?<!\w){words}(?!\w)", query.text, re.IGNORECASE)]
        # In scripts without spaces a title is a part of a text.
        for match in whole or re.finditer(words, query.text, re.IGNORECASE):
            if corpus.links().in_text(match[0]):  # not the word "alien" for the title "Alien"
                places[match.span()] = name
    text, done = "", 0
    for (start, end), name in sorted(places.items()):
        if start < done:  # a part of a longer name
            continue
        title = query.text[start:end]
        end += title.count("(") > title.count(")") and query.text.startswith(")", end)
        firsts = (sentences(passage.text)[:1] for passage in corpus.passages(name.passages.tolist()))
        found = [match[1] for first in firsts for match in map(_DESCRIPTION.search, first) if match]
        found = [words for words in found if title.lower() not in words.lower()]
        if not found:
            lost = random.choice([n for n, letter in enumerate(title) if letter.isalnum()])
            found = [title[:lost] + title[lost + 1 :]]
        text += query.text[done:start] + random.choice(found)
        done = end
    return query._replace(text=text + query.text[done:])


def main(data: str, output: str, kind: Perturbation = "typo", seed: int = 0, split: str = "train") -> None:
    """Write the data set; the queries of other splits stay as they are.

    Args:
        data: Data set folder with the split.
        output: Folder to write; an earlier one is replaced.
        kind: Kind of perturbation.
        seed: Its seed.
        split: Training queries are added; those of another split replace the tidy ones.
    """
    qrels = {file.stem: read_qrels(file) for file in sorted((Path(data) / "qrels").glob("*.tsv"))}
    if split not in qrels:
        raise SystemExit(f"error: {data} has no qrels/{split}.tsv: name a data set folder with this split.")
    corpus, queries, told = Corpus.read(data), read_queries(data), 0
    for number, query in enumerate([*queries]):
        changed = perturbed(query, kind, seed, corpus) if query.id in qrels[split] else None
        if changed is None:
            continue
        told += 1
        if split != "train":
            queries[number] = changed
            continue
        queries.append(changed._replace(id=f"{query.id}-{kind}"))
        qrels[split][f"{query.id}-{kind}"] = qrels[split][query.id]
    if not told:
        needs = {"language": '"translations" in the metadata of queries', "alias": "a corpus with titles"}
        need = needs.get(kind, "queries with qrels")
        raise SystemExit(f"error: {kind} changes no query of {split} in {data}: it needs {need}.")
    write_dataset(output, corpus, queries, qrels)
    print(f"{told:,} perturbed queries among {len(qrels[split]):,} of {split}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
