"""Perturbed queries: what people write in place of a tidy question.

A perturbation depends on its kind, the seed and the id of the query, so the same seed gives the same bytes on
every machine. Kinds: ``typo`` (a fifth of the words with four letters or more, and at least one, have two
letters swapped, a letter dropped or a letter doubled), ``order`` (the words in another order), ``case`` (all
in capitals or all in small letters), ``synonym`` (words of :data:`SYNONYMS` are replaced), ``language`` (a
translation of the query from its metadata: ``"translations": {"de": "…"}``).
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Literal, get_args

from grls.data.types import Query

Perturbation = Literal["typo", "order", "case", "synonym", "language"]
PERTURBATIONS: tuple[Perturbation, ...] = get_args(Perturbation)

_SHARE = 0.2
_WORD = re.compile(r"[^\W\d_]{4,}")

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


def perturbed(query: Query, kind: Perturbation, seed: int) -> Query | None:
    """The query with a perturbed text; None: its metadata have no translation."""
    random = Random(f"{seed} {kind} {query.id}")
    if kind == "language":
        translations = json.loads(query.metadata).get("translations")
        if not isinstance(translations, dict) or not translations:
            return None
        return query._replace(text=str(translations[random.choice(sorted(translations))]))
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
