"""Places of work in shards: the folder beside an output, and names that other machines can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grls.errors import MismatchError
from grls.io.locks import alone_in


def shards_folder(output: str | Path) -> Path:
    """The folder of the shards of an output, beside it."""
    place = Path(output).absolute()
    return place.with_name(f".{place.name}.shards")


@contextmanager
def alone_at_shards(output: str | Path) -> Iterator[None]:
    """Hold the folder of the shards of an output, from before the plan until the shards are saved elsewhere.

    Raises:
        WriteError: Another run holds it, in this process or another, or it cannot be made.
    """
    with alone_in(shards_folder(output)):
        yield


def seen_elsewhere(place: str) -> str:
    """A path in its absolute form, since a worker runs in another folder; a hub name stays as it is."""
    return str(Path(place).absolute()) if Path(place).exists() else place


def other_on_worker(place: str, what: str) -> str:
    """The error text for a worker that reads something else under the same name."""
    return f"{place}: a worker reads another {what} there; all machines must see the same files."


def refuse_other_reading(
    held: Mapping[str, Any], wanted: Mapping[str, Any], places: Mapping[str, tuple[str, str]]
) -> None:
    """Refuse work on a worker that reads something else than the command.

    Args:
        held: Fingerprints and options, as the worker has read them.
        wanted: Those of the command.
        places: Name of a fingerprint -> the path, and what is there.

    Raises:
        MismatchError: One differs.
    """
    for name, value in wanted.items():
        if held.get(name) != value:
            place, what = places.get(name, (name, name))
            raise MismatchError(other_on_worker(place, what))
