"""The precision of a model: selected by name, or by a measurement on this machine.

``float32`` and ``bfloat16`` apply to all computation. ``float16-weights`` and ``int8`` are for CPUs: they
store the weights of the linear layers in 16 or 8 bits, except the head, and compute in float32; ``int8``
in whole numbers that are scaled for each product, so scores depend slightly on the rest of the batch.
bfloat16 is faster than float32 on a processor with instructions for it, and several times slower without.
"""

from __future__ import annotations

import logging
import timeit
import warnings
from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from grls.errors import NOT_NUMBERS, ConfigError, one_of, out_of_memory
from grls.models.option_names import Numbers
from grls.models.option_names import Precision as Precision

log = logging.getLogger(__name__)

_PACKED: dict[str, torch.dtype] = {"float16-weights": torch.float16, "int8": torch.qint8}
_ROWS, _WIDTH, _REPEATS = 40, 512, 8


def move(model: Any, device: str, precision: str) -> Any:
    """Move a float32 model to a device and a precision, in eval mode; it may be changed in place.

    ``device`` ``auto``: a GPU if there is one. ``precision`` ``auto``: the fastest but ``int8``, by
    measuring one product in each.
    """
    one_of(get_args(Precision), precision=precision)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    # Weights get their type on the way, so the device needs no room for others.
    dtype = getattr(torch, precision) if precision in get_args(Numbers) else None
    try:
        target = torch.device(device)
        model.to(target, dtype)
    except (RuntimeError, AssertionError) as error:
        if out_of_memory(error):
            raise
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use device {device!r} ({reason}); choose cpu, or a GPU of this machine."
        ) from error
    chosen = fastest(target) if precision == "auto" else precision
    if chosen in _PACKED:
        if target.type != "cpu":
            raise ConfigError(f"precision {chosen} is for CPUs; on {target} choose bfloat16 or float32.")
        pack(model, chosen)
        return model.eval()
    if precision == "bfloat16":
        warn_of_emulation(target, "precision float32")
    return model.to(getattr(torch, chosen)).eval()


def fastest(device: torch.device) -> str:
    """The precision that multiplies fastest on a device: float32, bfloat16 or (on CPUs) float16-weights."""
    times = {}
    with torch.inference_mode():
        rows, weight = torch.randn(_ROWS, _WIDTH, device=device), torch.randn(_WIDTH, _WIDTH, device=device)
        times["float32"] = _seconds(lambda: functional.linear(rows, weight), device)
        short, rounded = rows.bfloat16(), weight.bfloat16()
        times["bfloat16"] = _seconds(lambda: functional.linear(short, rounded), device)
        if device.type == "cpu" and packs("float16-weights"):
            packed = _packed(nn.Linear(_WIDTH, _WIDTH), "float16-weights")
            times["float16-weights"] = _seconds(lambda: packed(rows), device)
    return min(times, key=lambda name: times[name])


def accelerator() -> torch.device:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return device or torch.device("cpu")


def has_bfloat16(device: torch.device) -> bool:
    """Whether a processor has bfloat16 instructions, so that training in bfloat16 is faster.

    False for a CPU that is no x86, or if this version of PyTorch cannot say.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    known = _capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def warn_of_emulation(device: torch.device, remedy: str) -> None:
    """Warn that bfloat16 is slow on an x86 processor without its instructions; ``remedy`` is an option."""
    if device.type == "cpu" and "avx512_bf16" in _capabilities() and not has_bfloat16(device):
        log.warning(
            "this processor has no bfloat16 instructions, so bfloat16 is several times slower here than "
            "float32: use %s.",
            remedy,
        )


def _capabilities() -> dict[str, Any]:
    """Name -> whether the CPU has this capability; empty if this version of PyTorch cannot say."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return capabilities


def _seconds(work: Callable[[], Tensor], device: torch.device) -> float:
    def timed() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(timed, number=1, repeat=_REPEATS))


def packs(precision: str) -> bool:
    try:
        _packed(nn.Linear(2, 2), precision)
    except (AttributeError, ImportError, RuntimeError):
        return False
    return True


def pack(model: Any, precision: str) -> None:
    """Replace all linear layers of a model, except its head, by packed layers."""
    if not packs(precision):
        raise ConfigError(f"this build of PyTorch cannot store weights as {precision}; choose float32.")
    head = model.get_output_embeddings()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(module, name, _packed(child, precision))


def is_packed(model: Any) -> bool:
    """Whether :func:`pack` has changed a model, so that its weights can no longer be saved."""
    return any(type(module).__module__.startswith("torch.ao.") for module in model.modules())


def _packed(linear: nn.Linear, precision: str) -> nn.Module:
    # PyTorch deprecates this in favour of a package whose CPU kernels need a compiler. Once it is removed,
    # `packs` returns False.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao.nn.quantized.dynamic import Linear
        from torch.ao.quantization import float16_dynamic_qconfig, per_channel_dynamic_qconfig

        half = _PACKED[precision] is torch.float16
        linear.qconfig = float16_dynamic_qconfig if half else per_channel_dynamic_qconfig  # type: ignore[assignment]
        packed: nn.Module = Linear.from_float(linear)
        return packed


def refuse_nan_logits(logits: Tensor) -> None:
    if bool(logits.isnan().any()):
        raise ConfigError(NOT_NUMBERS)
