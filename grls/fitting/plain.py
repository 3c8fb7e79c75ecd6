"""The plain weights of a generator whose file is compressed (GGUF), kept while a run needs them.

Reading such a file again and again would take long: SmolLM2-135M's weights take 20 seconds of a processor. So
they are read once, before anything is measured, and the copy is opened from then on. It goes when the
generator is trained. Plan and model card name the model, not the copy.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from grls.errors import ConfigError
from grls.models.load.sources import language_source

COPY = "stages/base-generator"
"""The folder of the copy in the output of a run."""

_CONFIG = "config.json"
_GROWS = 8
"""How many times its file the plain weights of a model are at most: of 4 bits a weight, 32."""


def compressed_file(name: str) -> Path | None:
    """The compressed file of a model; None: it has none."""
    try:
        folder, options = language_source(name)
    except ConfigError:  # who opens it says so
        return None
    return Path(folder) / options["gguf_file"] if options else None


def copy_size(name: str) -> float:
    """GiB that the copy takes at most; 0: none is made."""
    file = compressed_file(name)
    return 0.0 if file is None else _GROWS * file.stat().st_size / 2**30


def make_copy(name: str, output: str | Path) -> None:
    """Write the plain weights of a model whose file is compressed, unless they are there."""
    if compressed_file(name) is None or (Path(output) / COPY / _CONFIG).is_file():
        return
    from grls.io.files import atomic_folder
    from grls.models.load.language import PretrainedLM
    from grls.models.load.saving import write_network

    loaded = PretrainedLM(name).load()
    with atomic_folder(Path(output) / COPY, _CONFIG) as folder:
        write_network(loaded.model, folder)
        loaded.tokenizer.save_pretrained(folder)


def opened_name(name: str, output: str | Path | None) -> str:
    """What a model is opened by: the copy if there is one, or else its name."""
    there = output is not None and (Path(output) / COPY / _CONFIG).is_file()
    return str(Path(str(output)) / COPY) if there and compressed_file(name) is not None else name


def remove_copy(output: str | Path) -> None:
    """Remove the copy."""
    shutil.rmtree(Path(output) / COPY, ignore_errors=True)
