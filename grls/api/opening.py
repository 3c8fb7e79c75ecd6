"""Opening a retriever folder, here or on the hub, as a searcher."""

from __future__ import annotations

from pathlib import Path

from grls.api.searcher import Searcher
from grls.data.inputs.arguments import checked
from grls.errors import ConfigError
from grls.models.precision_names import Device, PrecisionName
from grls.retrieve.hub_names import is_on_the_hub
from grls.retrieve.registry import Opening, load_retriever


@checked
def load(
    name: str | Path,
    *,
    revision: str | None = None,
    device: Device = "auto",
    precision: PrecisionName = "float32",
) -> Searcher:
    """Open a retriever of any kind, with what is tuned in it.

    Args:
        name: A retriever folder, the folder of a run of ``grls fit``, or the name of a repository on the hub
            (``user/name``) where there is no such folder. What comes from the hub is compared with its
            checksums, and no code of it is run.
        revision: Branch, tag or commit on the hub; None: the newest.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
        precision: Precision of its models; see :class:`~grls.retrieve.registry.Opening`.

    Raises:
        ConfigError: There is no such repository, the hub cannot be reached, or a folder has a revision.
        DataError: There is no retriever.
        MismatchError: The folder is damaged, or its parts do not belong together.
    """
    if is_on_the_hub(name):
        from grls.retrieve.hub import download

        folder = download(str(name), revision)
        how = Opening(device, precision, verify=True)
        return Searcher(load_retriever(folder, how), folder, how)
    if revision is not None:
        raise ConfigError(f"{name} is no repository on the hub, so it has no revision: leave revision out.")
    how = Opening(device, precision)
    return Searcher(load_retriever(name, how), name, how)
