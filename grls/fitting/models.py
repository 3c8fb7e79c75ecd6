"""The models that a bi-encoder and a generator begin with: which there are, and which are chosen.

A model is a folder, the model of an installed package, or a name on the hub, whether its files are in the
cache or the hub can be reached (HF_HUB_OFFLINE is respected). Whether there is such a model is known before
anything is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grls.errors import ConfigError
from grls.fitting.machine import Machine
from grls.fitting.options import AUTO, NONE
from grls.models.load.sentence_folder import MODULES, file_of, module_folders
from grls.models.load.sources import (
    PACKAGED,
    first_line,
    hub_answers,
    is_packaged,
    language_source,
    packaged_encoder,
    refuse_missing_folder,
)

Place = Literal["package", "folder", "hub"]

_ENCODER = "all-MiniLM-L6-v2"
_ENCODERS = (_ENCODER, "sentence-transformers/all-MiniLM-L6-v2")
_WRITERS = (PACKAGED, "HuggingFaceTB/SmolLM2-135M-Instruct")
"""For a CPU: measured on every data set of docs/results.md."""

_LARGE_ENCODERS = ("sentence-transformers/all-mpnet-base-v2",)
_LARGE_WRITERS = ("HuggingFaceTB/SmolLM2-360M-Instruct", "google-t5/t5-base")
"""For a GPU; the first is that of the recipe ``chains``."""

_OTHER_ENCODERS = ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",)
"""For a corpus that is not in English."""

_LICENCE = "Apache-2.0"
"""The licence of all of these models."""

_LARGE = 12.0
"""GiB of GPU memory from which larger models are chosen."""


@dataclass(frozen=True)
class BaseModel:
    """A model to begin with.

    Args:
        name: Its name, for the options of a training.
        place: Where it is.
        causal: Whether it is a causal language model, not an encoder-decoder (of a generator).
        positions: The longest text in tokens (of a bi-encoder); None: no limit is known.
    """

    name: str
    place: Place
    causal: bool = True
    positions: int | None = None

    @property
    def title(self) -> str:
        """Its name for people, also on another machine: of a folder without its place."""
        return title_of(self.name)

    @property
    def loader(self) -> str:
        """The class that loads it as a generator."""
        kind = "language.CausalLM" if self.causal else "build.Pretrained"
        return f"grls.models.load.{kind}"


@dataclass(frozen=True)
class BaseModels:
    """The models to begin with.

    Args:
        biencoder: The model of the bi-encoder; None: there is none.
        generator: The model of the generator; None: there is none.
        without: What is left out for want of a model, and why: ``biencoder``, ``generator``.
    """

    biencoder: BaseModel | None
    generator: BaseModel | None
    without: dict[str, str]

    def line(self) -> str:
        """The models, for people."""
        named = (("bi-encoder", self.biencoder), ("generator", self.generator))
        return "; ".join(
            f"{what} {'none' if model is None else f'{model.name} ({model.place})'}" for what, model in named
        )


def title_of(name: str) -> str:
    """The name of a model for people; see :attr:`BaseModel.title`."""
    place = Path(name).expanduser()
    return place.absolute().name if place.exists() else name


def licence_of(name: str) -> str | None:
    """The licence of a model that is chosen by itself; None: its holder says it."""
    known = (*_LARGE_ENCODERS, *_ENCODERS, *_LARGE_WRITERS, *_WRITERS, *_OTHER_ENCODERS)
    return _LICENCE if name in known else None


def base_models(biencoder: str, generator: str, machine: Machine, language: str | None) -> BaseModels:
    """Find the models.

    Args:
        biencoder: A folder, package or hub name; ``auto``: choose; ``none``: no bi-encoder.
        generator: The same for the generator.
        machine: A GPU with enough memory gets larger models.
        language: The language of the corpus.

    Raises:
        ConfigError: A model is neither folder nor package nor a hub name that can be reached.
    """
    large = machine.gpu_memory >= _LARGE
    encoders = (*_LARGE_ENCODERS, *_ENCODERS) if large else _ENCODERS
    if language not in (None, "en"):
        encoders = (*_OTHER_ENCODERS, *_ENCODERS)
    writers = (*_LARGE_WRITERS, *_WRITERS) if large else _WRITERS
    without: dict[str, str] = {}
    return BaseModels(
        _chosen("biencoder", biencoder, encoders, find_encoder, without),
        _chosen("generator", generator, writers, find_writer, without),
        without,
    )


def _chosen(
    what: str,
    asked: str,
    candidates: Sequence[str],
    find: Callable[[str], BaseModel],
    without: dict[str, str],
) -> BaseModel | None:
    """The model asked for, or the first candidate that there is."""
    if asked == NONE:
        without[what] = f"--{what} none"
        return None
    if asked != AUTO:
        return find(asked)
    errors = []
    for name in candidates:
        try:
            return find(name)
        except ConfigError as error:
            errors.append(str(error))
    without[what] = f"no model for it: {errors[-2] if len(errors) > 1 else errors[-1]}"
    return None


def find_encoder(name: str) -> BaseModel:
    """The model that a bi-encoder begins with.

    Raises:
        ConfigError: There is no such model.
    """
    if is_packaged(name):
        packaged_encoder(name)
        return BaseModel(name, "package")
    if (folder := Path(name).expanduser()).is_dir():
        if not any((folder / file).is_file() for file in ("modules.json", "config.json")):
            raise ConfigError(
                f"{name} holds no model (no modules.json, no config.json): give the folder of a model of "
                "sentence-transformers, or one that a training wrote (OUTPUT/model)."
            )
        return BaseModel(name, "folder", positions=_positions(str(folder)))
    _refuse_unreachable(name, "bi-encoder", _ENCODER)
    return BaseModel(name, "hub", positions=_positions(name))


def _positions(source: str) -> int | None:
    """The positions of an encoder, from its config; None: no limit, or it has no transformer."""
    from grls.models.load.build import encoder_positions
    from grls.models.load.opening import open_config, opening

    with opening("a bi-encoder", source, "Give the folder or hub name of a model of sentence-transformers."):
        parts = module_folders(source)
        folder = parts[0].folder if parts else ""
        if file_of(source, f"{folder}/config.json".removeprefix("/")) is None:
            return None
        return encoder_positions(open_config(source, subfolder=folder))


def find_writer(name: str) -> BaseModel:
    """The model that a generator begins with.

    Raises:
        ConfigError: There is no such model, or it is an encoder, which writes nothing.
    """
    from grls.models.load.build import refuse_encoder
    from grls.models.load.opening import open_config, opening

    if name == PACKAGED:
        language_source(name)
        return BaseModel(name, "package")
    place: Place = "folder" if Path(name).expanduser().exists() else "hub"
    if place == "hub":
        _refuse_unreachable(name, "generator", PACKAGED)
    source, options = language_source(name)
    with opening(
        "a generator", name, "Give a causal language model or an encoder-decoder: a folder or a hub name."
    ):
        config: Any = open_config(source, **options)
        refuse_encoder(config)
    return BaseModel(name, place, not config.is_encoder_decoder)


def _refuse_unreachable(name: str, what: str, package: str) -> None:
    """Refuse a hub name whose config is neither in the cache nor to be had from the hub."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    refuse_missing_folder(name)
    online = hub_answers()
    try:
        try:
            hf_hub_download(name, "config.json", local_files_only=not online)
        except (
            EntryNotFoundError,
            LocalEntryNotFoundError,
        ):  # the model has no transformer, or in a subfolder
            hf_hub_download(name, MODULES, local_files_only=not online)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = first_line(error).rstrip(".") if online else "the hub cannot be reached"
        raise ConfigError(
            f"there is no model {name!r} for the {what}: it is no folder and no package, and as a hub name "
            f"it is not in the cache ({reason}). Give a folder, {package} (an installed package), or `none`."
        ) from None


COPY = "stages/base-generator"
"""The folder of the plain weights of a generator whose file is compressed (GGUF), in the output of a run.
Reading such a file takes long, so it is read once; the copy goes when the generator is trained."""

_CONFIG = "config.json"


def compressed_file(name: str) -> Path | None:
    """The compressed file of a model; None: it has none."""
    try:
        folder, options = language_source(name)
    except ConfigError:  # who opens it says so
        return None
    return Path(folder) / options["gguf_file"] if options else None


def make_copy(name: str, output: Path) -> None:
    """Write the plain weights of a model whose file is compressed, unless they are there."""
    if compressed_file(name) is None or (output / COPY / _CONFIG).is_file():
        return
    from grls.io.files import atomic_folder
    from grls.models.load.language import PretrainedLM
    from grls.models.load.saving import write_network

    loaded = PretrainedLM(name).load()
    with atomic_folder(output / COPY, _CONFIG) as folder:
        write_network(loaded.model, folder)
        loaded.tokenizer.save_pretrained(folder)


def opened_name(name: str, output: Path) -> str:
    """What a model is opened by: the copy if there is one, or else its name."""
    there = (output / COPY / _CONFIG).is_file() and compressed_file(name) is not None
    return str(output / COPY) if there else name
