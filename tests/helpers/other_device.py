"""A device that is not there: tensors lie on the processor, and what a GPU would refuse is refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_AWAY = "away"  # the attribute of a tensor on the other device
_DEVICE = torch.device("cuda")
_MIXED = {"copy_", "index", "index_put_", "_index_put_impl_"}
"""Operations that take tensors of two devices; indices may lie on the processor."""


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_iter(values) if isinstance(value, Tensor)]


def _is_device(value: Any) -> bool:
    """Whether a value names the processor or the other device."""
    return isinstance(value, torch.device | str) and str(value).split(":")[0] in ("cpu", "cuda")


def _moved(values: Any, away: bool) -> Any:
    for tensor in _tensors(values):
        setattr(tensor, _AWAY, away)
    return values


class _Operations(TorchDispatchMode):
    """Refuses operations on tensors of two devices; results lie where the arguments do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = _tensors((args, kwargs))
        away = [getattr(tensor, _AWAY, False) for tensor in tensors]
        here = [tensor for tensor, other in zip(tensors, away, strict=True) if not other and tensor.dim()]
        name = func.overloadpacket.__name__
        assert not (any(away) and here and name not in _MIXED), f"{name} with tensors of two devices"
        found = func(*args, **(kwargs or {}))
        return _moved(found, away[0] if name in _MIXED else True) if any(away) else found


class _Calls(TorchFunctionMode):
    """Makes tensors on the other device, and says where they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        away = bool(args) and isinstance(args[0], Tensor) and getattr(args[0], _AWAY, False)
        name = getattr(func, "__name__", "")
        if away and func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return _DEVICE
        if name in ("numpy", "__array__"):
            assert not away, "a tensor of a GPU has no array: .cpu() first"
        named = [value for value in (*args[1:], *kwargs.values()) if _is_device(value)]
        kind = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.dtype)]
        if name == "cpu" or (name == "to" and named and torch.device(named[0]).type == "cpu"):
            return _moved(args[0].to(*kind).clone(), False)
        if not named:
            return func(*args, **kwargs)
        args = [torch.device("cpu") if _is_device(value) else value for value in args]
        kwargs = {key: torch.device("cpu") if _is_device(value) else value for key, value in kwargs.items()}
        found = func(*args, **kwargs)
        return _moved(found.clone() if name == "to" else found, torch.device(named[0]).type == "cuda")


@contextmanager
def other_device(*modules: torch.nn.Module) -> Iterator[None]:
    """In this context models lie on a device ``cuda``, and tensors of two devices do not meet."""
    parts = [*(part for module in modules for part in (*module.parameters(), *module.buffers()))]
    _moved(parts, True)
    try:
        with _Operations(), _Calls():
            yield
    finally:
        _moved(parts, False)
