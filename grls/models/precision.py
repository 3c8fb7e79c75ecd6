"""The device and the precision of a model.

bfloat16 is faster than float32 on a processor with instructions for it, and several times slower without.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from grls.errors import NOT_NUMBERS, ConfigError, out_of_memory

log = logging.getLogger(__name__)


def move(model: Any, device: str, precision: str) -> Any:
    """Move a float32 model to a device and a precision, in eval mode; it may be changed in place.

    ``device`` ``auto``: a GPU if there is one. ``precision`` ``auto``: bfloat16 where the processor has
    instructions for it, else float32.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        target = torch.device(device)
        if precision == "auto":
            precision = "bfloat16" if has_bfloat16(target) else "float32"
        # Weights get their type on the way, so the device needs no room for others.
        model.to(target, getattr(torch, precision))
    except (RuntimeError, AssertionError) as error:
        if out_of_memory(error):
            raise
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use device {device!r} ({reason}); choose cpu, or a GPU of this machine."
        ) from error
    if precision == "bfloat16":
        warn_of_emulation(target, "precision float32")
    return model.eval()


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


def refuse_nan_logits(logits: Tensor) -> None:
    if bool(logits.isnan().any()):
        raise ConfigError(NOT_NUMBERS)
