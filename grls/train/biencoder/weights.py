"""The weights of a bi-encoder in training: whole or in shards (FSDP2), all of them or adapters (LoRA).

accelerate, on which the trainer of sentence-transformers is built, shards models on GPUs only, and its
checkpoints hold no plain model. So the model is sharded here, before the trainer makes its optimizer, and a
checkpoint holds whole weights and whole states of the optimizer: a run resumes from it on any number of
processes. Each process has its shards alone, but for one layer at a time; a checkpoint is gathered in main
memory of the first process.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from transformers import PreTrainedModel

from grls.errors import ConfigError
from grls.models.lora import add_adapters, merge_adapters
from grls.train.core.processes import is_first, processes
from grls.train.core.sharded import Within, gathered_weights, layers_of, shard_model, whole_weights

Strategy = Literal["ddp", "fsdp", "fsdp_cpu_offload"]

ADAPTERS = "adapters.safetensors"
"""The file of a checkpoint with the adapters alone; the model beside it has them merged."""
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class TrainedWeights:
    """A model whose weights are trained.

    Args:
        model: The network; it is sharded in place.
        strategy: Whole weights in each process (``ddp``), or shards.
        lora_rank: Rank of the adapters, which are added in place; 0: all weights are trained.
        lora_dropout: Dropout of the adapters' inputs.

    Raises:
        ConfigError: The model has no layers to shard, or no network that adapters can be added to.
    """

    def __init__(self, model: Any, strategy: Strategy = "ddp", lora_rank: int = 0, lora_dropout: float = 0.0):
        self.model = model
        self.strategy = strategy
        self.adapted = lora_rank > 0
        self.within: Within | None = None
        self._plain: Any = None
        if self.adapted:
            add_adapters(_network(model), lora_rank, lora_dropout)
        if strategy != "ddp":
            layers_of(model)

    @property
    def sharding(self) -> bool:
        """Whether the strategy shards, be it for one process."""
        return self.strategy != "ddp"

    def shard(self, device: torch.device, low: bool) -> None:
        """Shard the model over the processes, if there are several and the strategy does.

        Args:
            device: Where this process computes.
            low: Compute in bfloat16.
        """
        if not self.sharding or processes() == 1:
            return
        if is_first():
            self._plain = deepcopy(self.model)
            self._plain.model_card_data.model = self._plain  # else the card of a copy is that of the shards
        mesh = init_device_mesh(device.type, (processes(),))
        offload = self.strategy == "fsdp_cpu_offload" and device.type != "cpu"
        self.within = shard_model(self.model, mesh, low, offload)

    def whole(self) -> AbstractContextManager[None]:
        """A context in which each process can use the model on its own."""
        return whole_weights(self.model, self.within)

    def plain(self) -> Any:
        """The model to save, with whole weights and adapters merged; None on other processes than the first.

        All processes of a sharded run must call it.
        """
        model = self.model
        if self.within is not None:
            weights = gathered_weights(self.model)
            if self._plain is None:
                return None
            model = self._plain
            model.load_state_dict(weights)
        if self.adapted:
            model = deepcopy(model)
            merge_adapters(model)
        return model

    def adapters(self) -> dict[str, Any]:
        """The weights of the adapters by name; empty on other processes than the first of a sharded run."""
        weights = self.model.state_dict() if self.within is None else gathered_weights(self.model)
        return {name: value.contiguous() for name, value in weights.items() if "lora_" in name}

    def save_adapters(self, folder: str) -> None:
        """Write the adapters, if there are any, to a checkpoint. All processes must call it."""
        if self.adapted:
            weights = self.adapters()
            if is_first():
                save_file(weights, Path(folder) / ADAPTERS)

    def load(self, checkpoint: str, weights: Mapping[str, Any] | None) -> None:
        """Read the weights of a checkpoint.

        Args:
            checkpoint: Its folder.
            weights: Its weights by name, which have an effect without adapters.
        """
        known: dict[str, Any] = (
            load_file(Path(checkpoint) / ADAPTERS) if self.adapted else dict(weights or {})
        )
        options = StateDictOptions(full_state_dict=True, strict=not self.adapted)
        set_model_state_dict(self.model, known, options=options)

    def save_optimizer(self, optimizer: torch.optim.Optimizer, file: Path) -> None:
        """Write the whole states of an optimizer, by names of weights. All processes must call it."""
        states = get_optimizer_state_dict(self.model, optimizer, options=_WHOLE)
        if is_first():
            torch.save(states, file)

    def load_optimizer(self, optimizer: torch.optim.Optimizer, file: Path) -> None:
        """Read what :meth:`save_optimizer` wrote, on any number of processes."""
        states = torch.load(file, map_location="cpu", weights_only=True)
        options = StateDictOptions(full_state_dict=True, strict=False)  # a part may have no gradient
        set_optimizer_state_dict(self.model, optimizer, states, options=options)


def _network(model: Any) -> PreTrainedModel:
    """The network of transformers within a model of sentence-transformers."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            return part
    raise ConfigError("lora_rank: the model has no network of transformers to add adapters to: set it to 0.")
