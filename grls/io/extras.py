"""The extras of grls: packages that a part of it needs, and a search does not.

Code of such a part calls :func:`require` before it begins, or imports the packages within :func:`needing`. A
test compares the extras with those of ``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from grls.errors import ConfigError

EXTRAS: dict[str, tuple[str, ...]] = {
    "train": ("lightning", "tensorboard"),
    "report": ("matplotlib",),
    "lora": ("peft",),
    "qlora": ("bitsandbytes", "peft"),
    "dsp": ("dspy",),
    "releases": ("ijson",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "mcp": ("mcp",),
    "ray": ("ray",),
    "langchain": ("langchain_core",),
    "llama-index": ("llama_index",),
    "haystack": ("haystack",),
    "pyterrier": ("pyterrier",),
    "mteb": ("mteb",),
}
"""Extra -> the packages that it brings, as they are imported."""


def require(extra: str, what: str) -> None:
    """Refuse to begin without the packages of an extra.

    Args:
        extra: The extra.
        what: What needs it, for the error.

    Raises:
        ConfigError: A package is not installed.
    """
    if packages := _lacking(extra):
        raise ConfigError(_remedy(extra, what, packages, "not installed"))


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """A block of imports that need an extra.

    Args:
        extra: The extra.
        what: What needs it, for the error.

    Raises:
        ConfigError: A package of the extra is not installed, or cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        if _package(error) == "grls":  # a fault of ours
            raise
        raise ConfigError(_remedy(extra, what, EXTRAS[extra], str(error))) from None


def missing(error: ImportError) -> str | None:
    """The error line for an import that failed because an extra is not installed; None for others."""
    for extra in EXTRAS:
        if _package(error) in _lacking(extra):
            return _remedy(extra, "this", [_package(error)], "not installed")
    return None


def lacking_extras() -> list[str]:
    """The extras that are not installed, or not as a whole."""
    return [extra for extra in EXTRAS if _lacking(extra)]


def _lacking(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if not _installed(package)]


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # it stands in sys.modules without a specification: its import is blocked
        return False


def _package(error: ImportError) -> str:
    return (error.name or "").partition(".")[0]


def _remedy(extra: str, what: str, packages: Sequence[str], why: str) -> str:
    return f'{what} needs {" and ".join(packages)} ({why}): pip install "grls[{extra}]".'
