"""How a command ends (exit codes, the line of an error, signals), and what it needs and silences before that.

An error of grls, a missing extra, too little memory or a file that cannot be written: one line and exit
code 1; wrong arguments: 2. Ctrl-C: 130; SIGTERM and SIGHUP: the shell's code. Output that
nobody reads (``| head``): 141. Any other error is a bug, and its whole traceback is shown.
"""

from __future__ import annotations

import io
import logging
import os
import re
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tqdm import tqdm

from grls.errors import ConfigError, GrlsError, OptionError, in_shell, out_of_memory, worded_for
from grls.io.files import WRITE_ERRORS, is_write_failure
from grls.io.progress import Visible, visible

SIGNALS = ("SIGTERM", "SIGHUP")
"""The signals that end a command, beside Ctrl-C."""


def exit_code_of(
    run: Callable[[], int | None], saving: Callable[[], str], signals: Sequence[str] = SIGNALS
) -> int:
    """Run a command, and report in one line what ended it.

    Args:
        run: Runs it, and may return an exit code.
        saving: Returns a sentence on how to save memory.
        signals: Those that end it. One that is ignored (``nohup``) or has a handler is left alone.

    Returns:
        The exit code; 141 if nobody reads its output.
    """
    if sys.platform == "win32":  # else what goes to a file or a pipe is in the code page of the machine
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
    if logging.lastResort is not None:  # the handler of warnings when logging is not configured
        logging.lastResort.setFormatter(Visible())
    with worded_for(in_shell):
        try:
            with _ending_cleanly(signals):
                code = run() or 0
        except BaseException as error:
            line, code = _reported(error, saving)
            if line is None:
                harmless = isinstance(error, BrokenPipeError) or (
                    isinstance(error, SystemExit) and not error.code
                )
                if _unread() and harmless:
                    return 141
                raise  # a bug, whose traceback is shown, or the end of --help
            print(f"error: {visible(line)}", file=sys.stderr)
    return 141 if _unread() and not code else code


def _reported(error: BaseException, saving: Callable[[], str]) -> tuple[str | None, int]:
    """The line of an error and its exit code; no line: it is a bug."""
    if isinstance(error, GrlsError):
        return str(error), 2 if isinstance(error, OptionError) else 1
    if isinstance(error, ImportError):
        return missing(error), 1
    if out_of_memory(error):
        allocated = _ALLOCATED.search(str(error))
        size = f" ({allocated[1]} more were asked for)" if allocated else ""
        return f"there is not enough memory{size}. {saving()}", 1
    if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
        # Lightning writes checkpoints and logs itself.
        remedy = "Free disk space or choose a place that can be written"
        return f"{error}. {remedy}, then go on from the last checkpoint.", 1
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing half-written is left.", 128 + signal.SIGINT
    if isinstance(error, _Ended):
        number = int(str(error.code))
        name = signal.Signals(number - 128).name
        return f"ended by {name}; nothing half-written is left.", number
    return None, 0


class _Ended(SystemExit):
    """SIGTERM or SIGHUP; the code is the shell's."""


@contextmanager
def _ending_cleanly(names: Sequence[str]) -> Iterator[None]:
    """Let signals end a command as an error does, so that nothing half-written is left.

    A thread that cannot write prints no traceback: the main thread meets the same error.
    """
    process = os.getpid()
    before = threading.excepthook

    def end(number: int, _: object) -> None:
        if os.getpid() != process:  # a forked process has nothing to clean up
            os._exit(128 + number)
        signal.signal(number, signal.SIG_IGN)
        raise _Ended(128 + number)

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None or not is_write_failure(args.exc_value):
            before(args)

    numbers = []
    if threading.current_thread() is threading.main_thread():
        known = [getattr(signal, name) for name in names if hasattr(signal, name)]
        numbers = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


_ALLOCATED = re.compile(r"to allocate ([\d.,]+ ?\w+)")
"""The size of the request in the errors of NumPy and torch."""


def _unread() -> bool:
    """Flush standard output. If its reader has gone, returns true, and further output is discarded."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        gone = True
    else:
        try:
            poll = select.poll()
            poll.register(sys.stdout.fileno(), select.POLLERR)
            gone = any(event & select.POLLERR for _, event in poll.poll(0))
        except (AttributeError, OSError):  # no poll on Windows; no file behind the stream
            gone = False
    if gone:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    return gone


def quiet() -> None:
    """Silence notes of other libraries that are not for users; warnings that matter stay.

    Importing transformers takes half a second. So a process without it finds the settings in the
    environment.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "transformers" in sys.modules:
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
    else:
        os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        if "huggingface_hub" in sys.modules:  # it has read its environment
            from huggingface_hub.utils.tqdm import disable_progress_bars

            disable_progress_bars()
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.seed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Our data modules resume within an epoch, though their loaders cannot. A bi-encoder is set to train mode
    # by each batch, and a short training has lines of its own. The other two warnings concern the inside of
    # Lightning and small machines.
    for message in (
        "You're resuming from a checkpoint that ended before the epoch ended",
        ".*LeafSpec.* is deprecated",
        ".*does not have many workers.*",
        "Found .* eval mode at the start of training",
        "The number of training batches .* is smaller than the logging interval",
    ):
        warnings.filterwarnings("ignore", message)


@contextmanager
def without_weight_bars() -> Iterator[None]:
    """A context in which transformers draws no progress bar for weights (downloads keep theirs)."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging

    gguf: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    downloads, weights = not are_progress_bars_disabled(), transformers_logging.is_progress_bar_enabled()
    gguf.tqdm = partial(tqdm, disable=True)
    transformers_logging.disable_progress_bar()  # and those of downloads
    try:
        if downloads:
            enable_progress_bars()
        yield
    finally:
        if weights:
            transformers_logging.enable_progress_bar()
        if not downloads:
            disable_progress_bars()


@contextmanager
def without_warnings() -> Iterator[None]:
    log = logging.getLogger("grls")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


EXTRAS: dict[str, tuple[str, ...]] = {
    "eval": ("ir_measures", "pandas", "datasets", "evaluate", "jinja2"),
    "models": (
        *("torch", "transformers", "tokenizers", "accelerate", "safetensors", "sentence_transformers"),
        *("huggingface_hub", "faiss", "marisa_trie", "pydivsufsort", "scipy", "sklearn"),
    ),
    "train": ("lightning", "tensorboard"),
    "lora": ("peft",),
    "qlora": ("bitsandbytes", "peft"),
    "dsp": ("dspy",),
    "releases": ("ijson",),
    "documents": ("pypdf", "mammoth"),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "mcp": ("mcp",),
    "ray": ("ray",),
    "langchain": ("langchain_core",),
    "llama-index": ("llama_index",),
    "haystack": ("haystack",),
    "pyterrier": ("pyterrier",),
    "mteb": ("mteb",),
}
"""Extra -> the packages that it brings, as they are imported. ``pyproject.toml`` has the same extras."""


def require(extra: str, feature: str) -> None:
    if packages := _lacking(extra):
        raise ConfigError(_remedy(extra, feature, packages, "not installed"))


@contextmanager
def needing(extra: str, feature: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "grls":  # a fault of ours
            raise
        raise ConfigError(_remedy(extra, feature, EXTRAS[extra], str(error))) from None


def missing(error: ImportError, feature: str = "this") -> str | None:
    """The error line if an import failed because an extra is not installed, else None."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra in EXTRAS if package in _lacking(extra)), None)
    return None if extra is None else _remedy(extra, feature, [package], "not installed")


def lacking_extras() -> list[str]:
    return [extra for extra in EXTRAS if _lacking(extra)]


def _lacking(extra: str) -> list[str]:
    lacking = []
    for package in EXTRAS[extra]:
        with suppress(ValueError):  # in sys.modules without a specification, so its import is blocked
            if find_spec(package) is not None:
                continue
        lacking.append(package)
    return lacking


def _remedy(extra: str, feature: str, packages: Sequence[str], reason: str) -> str:
    return f'{feature} needs {" and ".join(packages)} ({reason}): `pip install "grls[{extra}]"`.'
