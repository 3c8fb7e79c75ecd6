"""Perturbed queries: what becomes of a text."""

import json
from typing import get_args

import pytest

from benchmarks.perturbed import Perturbation, perturbed
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query


def test_perturbations_depend_on_seed_and_query_alone() -> None:
    metadata = json.dumps({"translations": {"de": "wer führte Regie?"}})
    query = Query("q1", "Who was the director of the Film Otter River?", metadata=metadata)
    corpus = Corpus.from_passages([Passage("film", "Otter River is a film by Ada Holt.", "Otter River")])
    for kind in get_args(Perturbation):
        texts = [getattr(perturbed(query, kind, seed, corpus), "text", None) for seed in (0, 0, 1, 2, 3)]
        assert texts[0] == texts[1]
        assert query.text not in texts
    assert perturbed(query, "synonym", 0, corpus) == query._replace(
        text="Who was the filmmaker of the movie Otter stream?"
    )
    assert perturbed(query._replace(metadata="{}"), "language", 0, corpus) is None
    order = perturbed(query, "order", 0, corpus)
    assert order is not None
    assert sorted(order.text.split()) == sorted(query.text.split())
    for kind in ("order", "case"):
        for text in ("two words", "TWO WORDS", "a b c"):
            made = [perturbed(query._replace(text=text), kind, seed, corpus) for seed in range(20)]
            assert text not in [each.text for each in made if each], "a query that stays says nothing"


ALIASES = [
    Passage(
        "river",
        "Otter River (1939) is a 1939 film, shot by Ada Holt. It was a success.",
        "Otter River (film)",
    ),
    Passage("ada", "Ada Holt, born in Delft, was the director of films. She is a star.", "Ada Holt"),
    Passage("den", "Dens of otters are in banks.", "Holt"),
    Passage("one", "Twin Peaks is a hill.", "Twin Peaks"),
    Passage("two", "Twin Peaks was a series", "Twin Peaks"),
    Passage("alien", "Alien is a ship.", "Alien"),
    Passage("tokyo", "東京は日本の首都。", "東京都"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is otter river older than Ada Holt?", {"Is a 1939 film older than the director of films?"}),
        ("Otter Rivers and a holt", {"Otter Rivers and a holt"}),
        ("a holt of Ada Holt's, Holtby", {"a holt of the director of films's, Holtby"}),
        ("Ada Holt in Alien, an alien", {"the director of films in a ship, an alien"}),
        ("where is Twin Peaks?", {"where is a hill?", "where is a series?"}),
        ("A Holt", {"A olt", "A Hlt", "A Hot", "A Hol"}),
        ("私は東京都に", {"私は京都に", "私は東都に", "私は東京に"}),
    ],
)
def test_descriptions_take_the_place_of_titles(text: str, expected: set[str]) -> None:
    corpus = Corpus.from_passages(ALIASES)
    drawn = [perturbed(Query("q", text), "alias", seed, corpus) for seed in range(60)]
    assert {query.text for query in drawn if query} == expected
    assert not [name for query in drawn if query for name in corpus.links().in_text(query.text)]
