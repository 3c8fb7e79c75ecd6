"""The models that trainings begin with: whether a name stands for a model, and what it is like.

A model is a folder, the model of an installed package, or a name on the hub (HF_HUB_OFFLINE is
respected). All this is known before anything is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grls.errors import ConfigError
from grls.models.load.opening import (
    PACKAGED,
    PACKAGED_ENCODER,
    IncompleteError,
    first_line,
    hub_answers,
    language_source,
    open_config,
    opening_errors,
    packaged_encoder,
    refuse_missing_folder,
)
from grls.models.load.sentence_folder import MODULES, file_of, module_folders

Source = Literal["package", "folder", "hub"]


@dataclass(frozen=True)
class BaseModel:
    """A model to begin with: its name, for the options of a training, and its source.

    ``causal``: a generator is no encoder-decoder. ``positions``: the longest text of a bi-encoder in
    tokens; None: no limit is known.
    """

    name: str
    source: Source
    causal: bool = True
    positions: int | None = None

    @property
    def title(self) -> str:
        """Its name for people, also on another machine: of a folder without its path."""
        return title_of(self.name)

    @property
    def loader(self) -> str:
        """The class of generators that a training starts from."""
        return "CausalLM" if self.causal else "Pretrained"


def title_of(name: str) -> str:
    path = Path(name).expanduser()
    return path.absolute().name if path.exists() else name


def find_encoder(name: str, role: str = "bi-encoder") -> BaseModel:
    """The model that a bi-encoder or a reranker (``role``) begins with; ConfigError if there is none."""
    if packaged_encoder(name) != name:
        return BaseModel(name, "package")
    if (folder := Path(name).expanduser()).is_dir():
        if not any((folder / file).is_file() for file in ("modules.json", "config.json")):
            raise ConfigError(
                f"{name} holds no model (no modules.json, no config.json): give the folder of a model of "
                "sentence-transformers, or one that a training wrote (OUTPUT/model)."
            )
        return BaseModel(name, "folder", positions=_positions(str(folder), role))
    _refuse_unreachable(name, role, PACKAGED_ENCODER)
    return BaseModel(name, "hub", positions=_positions(name, role))


def _positions(source: str, role: str) -> int | None:
    """The positions of an encoder, from its config; None: no limit, or it has no transformer."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from grls.models.load.build import encoder_positions

    with opening_errors(
        f"a {role}",
        source,
        "Give the folder or hub name of an encoder, such as those of sentence-transformers.",
    ):
        parts = module_folders(source)
        folder = parts[0].folder if parts else ""
        if file_of(source, f"{folder}/config.json".removeprefix("/")) is None:
            return None
        config = open_config(source, subfolder=folder)
        causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
        if role == "reranker" and causal in (config.architectures or ()):
            raise IncompleteError(f"a {config.model_type} of this kind is a causal language model")
        return encoder_positions(config)


def find_writer(name: str) -> BaseModel:
    """The model that a generator begins with; ConfigError if there is none, or it is an encoder."""
    from grls.models.load.build import refuse_encoder

    if name == PACKAGED:
        language_source(name)
        return BaseModel(name, "package")
    source: Source = "folder" if Path(name).expanduser().exists() else "hub"
    if source == "hub":
        _refuse_unreachable(name, "generator", PACKAGED)
    file, options = language_source(name)
    with opening_errors(
        "a generator", name, "Give a causal language model or an encoder-decoder: a folder or a hub name."
    ):
        config: Any = open_config(file, **options)
        refuse_encoder(config)
    return BaseModel(name, source, not config.is_encoder_decoder)


def _refuse_unreachable(name: str, kind: str, package: str) -> None:
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
        except (EntryNotFoundError, LocalEntryNotFoundError):  # no transformer, or in a subfolder
            hf_hub_download(name, MODULES, local_files_only=not online)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = first_line(error).rstrip(".") if online else "the hub cannot be reached"
        raise ConfigError(
            f"there is no model {name!r} for the {kind}: it is no folder and no package, and as a hub name "
            f"it is not in the cache ({reason}). Give a folder, or {package} (an installed package)."
        ) from None
