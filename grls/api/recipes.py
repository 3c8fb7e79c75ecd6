"""The recipes by which bi-encoders and generators are trained from Python: names of what ``configs/`` holds.

A recipe of ``configs/`` is a layer of options. A recipe here names the stages of a training, and the layers
of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from grls.errors import ConfigError

_HOPS: Mapping[str, Any] = MappingProxyType({"data.multistep": None})
"""Hops where a query has several gold passages."""

Recipe = TypeVar("Recipe")


class BiEncoderRecipe(NamedTuple):
    """How a bi-encoder is trained.

    Attributes:
        what: The recipe in one line.
        layers: Recipes of ``configs/``, later ones over earlier ones.
    """

    what: str
    layers: tuple[str, ...]


class RecipeStage(NamedTuple):
    """A training stage of a generator.

    Attributes:
        stage: Its name (:mod:`grls.train.catalogue`).
        layers: Recipes of ``configs/``, later ones over earlier ones.
        options: Options over the layers.
    """

    stage: str
    layers: tuple[str, ...]
    options: Mapping[str, Any] = MappingProxyType({})


class GeneratorRecipe(NamedTuple):
    """How a generator is trained.

    Attributes:
        what: The recipe in one line.
        stages: Its stages; each begins with the model of the one before.
    """

    what: str
    stages: tuple[RecipeStage, ...]


BIENCODER_RECIPES = {
    "default": BiEncoderRecipe(
        "for any data, hops included: 3 epochs, at most 300 steps of 32 pairs",
        ("biencoder", "default/biencoder"),
    ),
    "single-step": BiEncoderRecipe(
        "for a search in a single step: 3 epochs, at most 300 steps of 32 pairs, texts of 256 tokens",
        ("biencoder", "single-step/biencoder"),
    ),
    "local": BiEncoderRecipe(
        "60 steps of short texts: minutes on two cores", ("biencoder", "local/biencoder")
    ),
    "paper": BiEncoderRecipe(
        "the settings of arXiv 2204.13596: 30 epochs of batches of 120", ("biencoder", "paper/biencoder")
    ),
    "released": BiEncoderRecipe(
        "the paper's released configuration: 150 epochs of batches of 120",
        ("biencoder", "released/biencoder"),
    ),
}

GENERATOR_RECIPES = {
    "default": GeneratorRecipe(
        "for any data, in minutes on a CPU: spans and hops, 5 epochs of at most 100 batches of 8 queries",
        (RecipeStage("chains", ("chains", "default/chains")),),
    ),
    "single-step": GeneratorRecipe(
        "spans, every passage from the query alone: 6 epochs of at most 100 batches of 16 queries",
        (RecipeStage("chains", ("chains", "single-step/chains")),),
    ),
    "chains": GeneratorRecipe(
        "whole passages, all hops of a query at once: 3 epochs of batches of 8 queries",
        (RecipeStage("chains", ("chains",), _HOPS),),
    ),
    "spans": GeneratorRecipe(
        "as chains, and writes spans of 8 words instead of whole passages",
        (RecipeStage("chains", ("chains", "spans"), _HOPS),),
    ),
    "rescore": GeneratorRecipe(
        "as spans, and learns to rescore whole passages that BM25 proposes",
        (RecipeStage("chains", ("chains", "spans", "rescore"), _HOPS),),
    ),
    "retrieve": GeneratorRecipe(
        "the second stage of arXiv 2204.13596 alone (encoder-decoders): 150 epochs of batches of 120",
        (RecipeStage("retrieve", ("retrieve",), _HOPS),),
    ),
    "memorise": GeneratorRecipe(
        "the first stage of arXiv 2204.13596 alone (encoder-decoders): writes passages, reads no query",
        (RecipeStage("memorise", ("memorise",)),),
    ),
    "memorise+retrieve": GeneratorRecipe(
        "both stages of arXiv 2204.13596 (encoder-decoders): 150 epochs of batches of 120 each",
        (RecipeStage("memorise", ("memorise",)), RecipeStage("retrieve", ("retrieve",), _HOPS)),
    ),
    "paper": GeneratorRecipe(
        "both stages with the paper's settings (encoder-decoders): 3 and 30 epochs",
        (
            RecipeStage("memorise", ("memorise", "paper/memorise")),
            RecipeStage("retrieve", ("retrieve", "paper/retrieve"), _HOPS),
        ),
    ),
}


def biencoder_recipe(name: str | Path) -> BiEncoderRecipe:
    """The recipe of a bi-encoder: one of :data:`BIENCODER_RECIPES`, or a YAML file over ``biencoder.yaml``.

    Raises:
        ConfigError: There is no such recipe.
    """
    if _is_file(name):
        return BiEncoderRecipe(str(name), ("biencoder", str(name)))
    return _named(str(name), BIENCODER_RECIPES, "bi-encoders")


def generator_recipe(name: str | Path) -> GeneratorRecipe:
    """The recipe of a generator: one of :data:`GENERATOR_RECIPES`, or a YAML file over ``chains.yaml``.

    Raises:
        ConfigError: There is no such recipe.
    """
    if _is_file(name):
        return GeneratorRecipe(str(name), (RecipeStage("chains", ("chains", str(name)), _HOPS),))
    return _named(str(name), GENERATOR_RECIPES, "generators")


def _is_file(name: str | Path) -> bool:
    return isinstance(name, Path) or (name.endswith((".yaml", ".yml")) and Path(name).is_file())


def _named(name: str, recipes: Mapping[str, Recipe], what: str) -> Recipe:
    if name in recipes:
        return recipes[name]
    near = get_close_matches(name, recipes, 2)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise ConfigError(
        f"there is no recipe {name!r} for {what}{meant} There are {', '.join(recipes)}; or give the path of "
        "a YAML file."
    )
