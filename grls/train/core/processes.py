"""Means over the examples of all processes of a training, so that their number changes no loss.

Legend: W processes; c_r examples (tokens, hops) of process r; C the sum of all c_r; m_r the mean of process
r.

DDP and FSDP average gradients over processes. The average of the means m_r is the mean over all examples only
where all processes have equal counts, which holds neither for tokens nor for the last batch of an epoch. So
each process weighs its mean by W c_r / C; the average of these is the mean over all C.

The module uses the process group of torch, also one made elsewhere, and before there is one the variables of
torchrun.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.files import atomic_folder, read_json, sha256, write_json
from grls.io.work import alone_in

T = TypeVar("T")


def launched() -> tuple[int, int] | None:
    """Processes of this machine, and machines, that torchrun started; None: it did not start this one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    return devices, int(os.environ["WORLD_SIZE"]) // devices


def is_first() -> bool:
    if processes() > 1:
        return distributed.get_rank() == 0
    return launched() is None or int(os.environ["RANK"]) == 0


_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
"""The variables by which torchrun, Lightning and SLURM number the processes of a training."""
_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK")
"""The variables that Lightning sets."""


@contextmanager
def only_training(output: str | Path) -> Iterator[None]:
    """Let one training at a time write a folder; the first of its processes holds it for all."""
    if any(os.environ.get(name, "0") not in ("", "0") for name in _RANKS):
        yield
        return
    with alone_in(output):
        yield


@contextmanager
def leaving_no_group() -> Iterator[None]:
    """The context of a training by Lightning: its variables of processes, and its group of one, end with it.

    Else the next training would read them: a bi-encoder's trainer would make a group of one, and a training
    on two processes wait for ever.
    """
    before, variables = _has_group(), {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        if not before and _has_group() and distributed.get_world_size() == 1:
            distributed.destroy_process_group()
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _has_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def processes() -> int:
    """The number of processes W; 1 outside of a process group."""
    return distributed.get_world_size() if _has_group() else 1


def mean_over_processes(mean: Tensor, count: float) -> Tensor:
    """The mean of this process, such that the average over processes is the mean over all examples.

    ``mean`` is m_r, a scalar over ``count`` examples, c_r (0 where there are none). All processes must
    call it, in the same order.
    """
    if processes() == 1:
        return mean
    total = torch.tensor(float(count), device=mean.device)
    distributed.all_reduce(total)
    return mean * (processes() * count / max(float(total), 1))


def averaged(value: Tensor) -> Tensor:
    """The average of a scalar over all processes, without a gradient."""
    value = value.detach().clone()
    if processes() > 1:
        distributed.all_reduce(value)
        value /= processes()
    return value


def summed(count: int, device: torch.device) -> int:
    if processes() == 1:
        return count
    total = torch.tensor(count, dtype=torch.int64, device=device)
    distributed.all_reduce(total)
    return int(total)


def by_first(work: Callable[[], T]) -> T:
    if processes() == 1:
        return work()
    outcome: list[Any] = [None, None]
    failure: Exception | None = None
    if is_first():
        try:
            outcome = [work(), None]
        except Exception as error:
            failure, outcome = error, [None, str(error)]
    distributed.broadcast_object_list(outcome)
    if failure is not None:
        raise failure
    if outcome[1] is not None:
        raise ConfigError(outcome[1])
    result: T = outcome[0]
    return result


def gathered(rows: Tensor) -> tuple[Tensor, int]:
    """The rows of all processes, ``[C, …]``, with gradients to all, and the index of this one's first row.

    Processes may have different numbers of rows.
    """
    if processes() == 1:
        return rows, 0
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(processes())]
    distributed.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = [int(count) for count in counts]
    return _Gather.apply(rows, sizes), sum(sizes[: distributed.get_rank()])


class _Gather(torch.autograd.Function):
    """Concatenates the rows of all processes; the gradient of a row is the sum of what all processes have."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total)
        return total.split(ctx.sizes)[distributed.get_rank()], None


def largest(counts: Sequence[int]) -> list[int]:
    """The largest count in each column over all processes; a process with fewer columns has 0 there."""
    if processes() == 1:
        return list(counts)
    counts_of_all: list[Any] = [None] * processes()
    distributed.all_gather_object(counts_of_all, list(counts))
    return [max(column) for column in zip_longest(*counts_of_all, fillvalue=0)]


META = "meta.pt"
"""The file of a checkpoint folder with everything but weights and states of the optimizer."""
_LAYERS = ("block", "blocks", "h", "layer", "layers")
"""Names of the lists of layers in models of transformers."""
_WEIGHTS = "state_dict"


class Within(nn.Sequential):
    """A model whose weights are whole while a function runs."""

    def forward(self, work: Callable[..., Tensor], *arguments: Any) -> Tensor:
        return work(*arguments)


class FullyShard(ModelParallelStrategy):
    """Shards weights, gradients and states of the optimizer over all processes (FSDP2 of torch).

    A checkpoint is a folder to which each process writes its shards; a run resumes from it on any number
    of processes. It holds pickles, so do not share it. ``cpu_offload``: keep the shards in main memory,
    and compute the steps of the optimizer there.
    """

    def __init__(self, cpu_offload: bool = False):
        super().__init__(save_distributed_checkpoint=True)
        self.cpu_offload = cpu_offload

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        if self.root_device.type == "cpu":
            self.cpu_offload = False  # there is nowhere to offload from
        super().setup_environment()

    def shard(self, model: nn.Module) -> Within:
        """Shard the layers of a model and the rest of it; the model is changed in place.

        With a precision of bfloat16 the processes compute and communicate in it; the shards keep theirs.
        """
        low = str(self.precision_plugin.precision).startswith("bf16")
        kind, sums = (torch.bfloat16, torch.float32) if low else (None, None)
        options: dict[str, Any] = {"mesh": self.device_mesh["data_parallel"]}
        if self.cpu_offload:
            options["offload_policy"] = CPUOffloadPolicy()
        policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=sums)
        whole = Within(model)
        for layer in layers_of(model):
            fully_shard(layer, mp_policy=policy, **options)
        # Targets and weights of the loss pass through, which must not be rounded.
        exact = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=sums, cast_forward_inputs=False)
        fully_shard(whole, mp_policy=exact, reshard_after_forward=True, **options)
        return whole

    def model_to_device(self) -> None:
        assert self.model is not None
        for buffer in self.model.buffers():
            buffer.data = buffer.data.to(self.root_device)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a folder beside the earlier one, with the hashes of its files, and rename it."""
        path = self.broadcast(str(filepath))
        with ExitStack() as stack:
            folder = str(stack.enter_context(atomic_folder(path, META))) if self.is_global_zero else ""
            folder = self.broadcast(folder)
            super().save_checkpoint(checkpoint, folder, storage_options)
            self.barrier()
            if self.is_global_zero:
                files = sorted(file for file in Path(folder).rglob("*") if file.is_file())
                hashes = {file.relative_to(folder).as_posix(): sha256(file) for file in files}
                write_json(f"{folder}/{HASHES}", hashes)
        self.barrier()

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        path = Path(checkpoint_path)
        refuse_damaged_folder(path)
        assert self.model is not None
        expected = self.model.state_dict()
        known = FileSystemReader(str(path)).read_metadata().state_dict_metadata
        prefix = f"{_WEIGHTS}."
        sizes = {
            name.removeprefix(prefix): list(getattr(entry, "size", ()))
            for name, entry in known.items()
            if name.startswith(prefix)
        }
        for name in sorted({*sizes, *expected}):
            if name not in sizes or name not in expected or sizes[name] != list(expected[name].shape):
                raise MismatchError(
                    f"the checkpoint {path} is of another model ({name}): resume with the options of that "
                    f"run, or begin a new run in another {Option('output')}."
                )
        return super().load_checkpoint(path, weights_only)

    def load_weights(self, path: str | Path) -> int:
        """Read the weights of a checkpoint into the model; returns the step of the checkpoint."""
        refuse_damaged_folder(Path(path))
        assert self.model is not None
        weights = {_WEIGHTS: get_model_state_dict(self.model)}
        load(weights, checkpoint_id=str(path))
        self.model.load_state_dict(weights[_WEIGHTS])
        return int(torch.load(Path(path) / META, weights_only=True)["global_step"])


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a model of transformers, in order: the members of its lists of layers."""
    lists = [
        part
        for name, part in model.named_modules()
        if isinstance(part, nn.ModuleList) and name.rpartition(".")[2] in _LAYERS
    ]
    outer = [part for part in lists if not any(part in set(other.modules()) - {other} for other in lists)]
    if not outer:
        raise ConfigError(f"{type(model).__name__} has no list of layers to shard: take the strategy ddp.")
    return [layer for part in outer for layer in part]


@contextmanager
def whole_weights(model: nn.Module, whole: Within | None) -> Iterator[None]:
    """A context in which a sharded model can be used as any other, by each process on its own.

    Each process needs memory for all weights. All enter and leave together. ``whole`` is what
    :meth:`FullyShard.shard` returned; None: the model is not sharded.
    """
    parts: list[FSDPModule] = []
    if whole is not None:
        parts = [part for part in whole.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.unshard()
        part.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(True, recurse=False)


def gathered_weights(model: nn.Module) -> dict[str, Any]:
    """The whole weights by name, in main memory of the first process; empty on other processes."""
    weights: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return weights


def local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def refuse_damaged_folder(path: Path) -> None:
    if not all((path / name).is_file() for name in (META, ".metadata")):
        raise ConfigError(f"{path} is no checkpoint of a sharded run: give the last.ckpt of one.")
    try:
        hashes = read_json(path / HASHES)
        changed = (f"{name} has changed" for name, digest in hashes.items() if sha256(path / name) != digest)
        fault = next(changed, None)
    except (AttributeError, DataError, OSError, TypeError, ValueError) as error:
        fault = str(error)
    if fault is not None:
        raise ConfigError(f"{path} is damaged ({fault}): resume from another checkpoint, or begin a new run.")


HASHES = "hashes.json"
"""The file of hashes (file -> SHA-256) in a checkpoint that is a folder; written last."""

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, MemoryError, NotImplementedError, OSError,
    OverflowError, RuntimeError, ValueError,
)  # fmt: skip
"""Errors that :mod:`zipfile` raises for a damaged archive."""


def damage(path: Path) -> str | None:
    """The damage of a file written by ``torch.save``, in words, if there is any.

    torch does not check what it reads. The file is a zip archive with a checksum of each part.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except _UNREADABLE as error:
        return str(error) or type(error).__name__
    return None if broken is None else f"the checksum of its part {broken} does not match"
