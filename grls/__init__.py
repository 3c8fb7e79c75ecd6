"""Generative retrieval for long sequences.

The names below are imported when they are used first, so ``import grls`` is quick::

    import grls

    retriever = grls.load("runs/mine")
    hits = retriever.search("what do otters eat?", k=5)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from grls.api.experiment import experiment as experiment
    from grls.api.fit import FitResult as FitResult
    from grls.api.fit import fit as fit
    from grls.api.identify import identify as identify
    from grls.api.opening import BM25 as BM25
    from grls.api.opening import fuse as fuse
    from grls.api.opening import load as load
    from grls.api.searcher import Searcher as Searcher
    from grls.api.training import BiEncoder as BiEncoder
    from grls.api.training import Generator as Generator
    from grls.data.corpus import Corpus as Corpus
    from grls.data.inputs.entries import documents as documents
    from grls.data.types import Chain as Chain
    from grls.data.types import Hit as Hit
    from grls.data.types import Passage as Passage
    from grls.data.types import Query as Query
    from grls.retrieve.folder_check import check_folder as check_folder

_MODULES = {
    "BM25": "grls.api.opening",
    "BiEncoder": "grls.api.training",
    "Chain": "grls.data.types",
    "Corpus": "grls.data.corpus",
    "FitResult": "grls.api.fit",
    "Generator": "grls.api.training",
    "Hit": "grls.data.types",
    "Passage": "grls.data.types",
    "Query": "grls.data.types",
    "Searcher": "grls.api.searcher",
    "check_folder": "grls.retrieve.folder_check",
    "documents": "grls.data.inputs.entries",
    "experiment": "grls.api.experiment",
    "fit": "grls.api.fit",
    "fuse": "grls.api.opening",
    "identify": "grls.api.identify",
    "load": "grls.api.opening",
}
"""Public name -> its module."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is used first."""
    if name not in _MODULES:
        raise AttributeError(f"module 'grls' has no attribute {name!r}")
    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ImportError as error:
        from grls.errors import ConfigError
        from grls.io.ending import missing

        if lacks := missing(error, f"grls.{name}"):
            raise ConfigError(lacks) from None
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *_MODULES})
