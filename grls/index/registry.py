"""The backends of the constraint index by name, and the function that adds a backend of yours.

A backend is a class of :class:`grls.index.base.Segment`. Files: :mod:`grls.index.storage`.
"""

from __future__ import annotations

from grls.errors import ConfigError
from grls.index.array import ArrayIndex
from grls.index.backends import FlatIndex, MarisaIndex
from grls.index.base import Segment
from grls.io.arguments import checked
from grls.io.recipes import VARIABLE, load_plugins

BACKENDS: dict[str, type[Segment]] = {b.backend: b for b in (ArrayIndex, MarisaIndex, FlatIndex)}
"""Name -> class."""

BUILT_IN = tuple(BACKENDS)
"""The backends of the package, whose arrays :mod:`grls.index.storage` knows."""

ROW_ARRAYS = ("tokens", "offsets", "within", "members", "member_offsets")
"""The arrays of the rows, which every index stores."""


@checked
def register_backend(backend: type[Segment]) -> None:
    """Add a backend.

    Args:
        backend: The class; its ``backend`` is the name, its ``stored`` the names of its arrays.

    Raises:
        ConfigError: The class lacks a method or its name, another class has the name, or an array has the
            name of one of the rows.
    """
    called, name = backend.__qualname__, getattr(backend, "backend", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f'{called} has no name: give it a class attribute backend = "…".')
    if lacking := sorted(getattr(backend, "__abstractmethods__", ())):
        raise ConfigError(f"the backend {name!r} ({called}) lacks {', '.join(lacking)}: write these methods.")
    if taken := sorted(set(backend.stored) & set(ROW_ARRAYS)):
        raise ConfigError(
            f"the backend {name!r} stores {taken[0]!r}, which is an array of the rows: rename it."
        )
    known = BACKENDS.get(name, backend)  # the same lines of a module that is read twice make another class
    if (known.__module__, known.__qualname__) != (backend.__module__, called):
        raise ConfigError(
            f"the backend {name!r} is {BACKENDS[name].__qualname__} already; choose another name."
        )
    BACKENDS[name] = backend


def check_backend(backend: str) -> None:
    """Refuse (ConfigError) the name of a backend that is neither of the package nor registered."""
    if backend not in BACKENDS:
        load_plugins()
    if backend not in BACKENDS:
        raise ConfigError(
            f"unknown index backend {backend!r}; expected one of {', '.join(BACKENDS)}, or one "
            f"that a module of {VARIABLE} registers."
        )
