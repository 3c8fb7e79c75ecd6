"""Chooses the fastest decoder that works for a model, an index and the options.

It is :mod:`grls.decode.gpu.search` on GPUs, :mod:`grls.decode.fast` for every other model that runs in slots,
and the plain beam search otherwise. The module handles model inputs and an index, no texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any, TypeVar

from grls.decode import Decoder, DeviceDecoder, FastDecoder
from grls.decode.gpu.search import suits
from grls.decode.prior import Prior
from grls.decode.slots import SlotDecoder
from grls.errors import ConfigError, Option
from grls.index import ConstraintIndex, UnionIndex
from grls.index.array import ArrayIndex
from grls.io.progress import Progress
from grls.io.turns import turn
from grls.models.causal.slots import CausalTrees
from grls.models.load.kinds import plain_generator, planted
from grls.models.seq2seq.plain import check_positions
from grls.models.seq2seq.slots import Seq2SeqTrees
from grls.retrieve.generative.options import SearchOptions

_Result = TypeVar("_Result")


class Decoders:
    """The decoders of a model, and the choice among them.

    Args:
        model: A transformers model, sequence-to-sequence or causal; it is used in eval mode.
        writes_spans: Whether it writes spans of passages.
    """

    def __init__(self, model: Any, writes_spans: bool):
        self.model = model
        self.writes_spans = writes_spans
        self.generator = plain_generator(model)
        self._kept: tuple[tuple[object, ...], SlotDecoder] | None = None

    def again(self) -> Decoders:
        """Decoders of the same model for another search, which keeps one of its own."""
        other = copy(self)
        other._kept = None
        return other

    @cached_property
    def trees(self) -> Seq2SeqTrees | CausalTrees | None:
        """The model for the fast search; None: it cannot run in slots."""
        return planted(self.generator)

    def plain(self, index: ConstraintIndex, options: SearchOptions, k: int) -> Decoder:
        """The plain beam search for k results an input; :meth:`run` has the same results."""
        return Decoder(self.generator, index, max(k, options.beams), options.mode, options.early_stop)

    def run(
        self,
        index: ConstraintIndex,
        options: SearchOptions,
        inputs: Sequence[Sequence[int]],
        k: int,
        label: str,
        prior: Prior | None,
        search: Callable[..., list[_Result]],
    ) -> list[_Result]:
        """The results of ``search`` with the fastest decoder for the model; threads wait for each other.

        Args:
            index: The constraint index.
            options: Options of decoding.
            inputs: Model inputs as token ids.
            k: Number of results for each input.
            label: Text of the progress bar.
            prior: Prior over the passages or spans of the index.
            search: Searches with a decoder, for numbers of inputs, with further options of the decoder.

        Raises:
            ConfigError: The option ``compile`` cannot be used, or the model has too few positions.
        """
        with turn(self.model), Progress(len(inputs), label, "inputs", shown=None) as bar:
            self.model.eval()
            if options.compile:
                self._refuse_to_compile(index)
            check_positions(self.model, max((len(row) for row in inputs), default=0), index.rows.longest)
            trees = self.trees
            if trees is None:
                return self._in_batches(index, options, inputs, k, prior, bar, search)
            fast = self._fast(trees, index, options, k)
            if isinstance(fast, DeviceDecoder) and prior is not None:  # it takes none
                fast = FastDecoder(trees, index, fast.beams, fast.mode, fast.early_stop, fast.slots)
            return search(fast, range(len(inputs)), bar.update, prior)

    def lets_join(self, index: ConstraintIndex, options: SearchOptions, priors: bool = False) -> bool:
        """Whether queries can join its search. It makes no decoder, since the one of a search is kept.

        Args:
            index: The constraint index.
            options: Options of decoding.
            priors: The queries have priors, which the search for GPUs does not take; it writes no spans
                either.
        """
        trees = self.trees
        if trees is None or options.compile:
            return False
        return (
            priors
            or self.writes_spans
            or not (isinstance(trees, Seq2SeqTrees) and suits(trees.device, index))
        )

    def joining(
        self, index: ConstraintIndex, options: SearchOptions, priors: bool = False
    ) -> FastDecoder | None:
        """The search that queries can join; None: there is none. Arguments are those of :meth:`lets_join`."""
        trees = self.trees
        if trees is None or not self.lets_join(index, options, priors):
            return None
        fast = self._fast(trees, index, options, 1)
        if isinstance(fast, DeviceDecoder):
            fast = FastDecoder(trees, index, fast.beams, fast.mode, fast.early_stop, fast.slots)
        return fast if isinstance(fast, FastDecoder) else None

    def _fast(
        self, trees: Seq2SeqTrees | CausalTrees, index: ConstraintIndex, options: SearchOptions, k: int
    ) -> SlotDecoder:
        """The fast search for k results an input; the last one is kept, with its data about the index."""
        plain, slots, compiled = self.plain(index, options, k), options.batch_size, options.compile
        new = (plain.beams, plain.mode, plain.early_stop, slots, compiled, trees.device)
        if self._kept is None or self._kept[0] != new or self._kept[1].index is not index:
            self._kept = None  # a compiled search holds memory on the device: one at a time
            how = (trees, index, plain.beams, plain.mode, plain.early_stop, slots)
            on_device: Any = partial(DeviceDecoder, compiled=compiled)
            suited = isinstance(trees, Seq2SeqTrees) and (compiled or suits(trees.device, index))
            suited = suited and not self.writes_spans  # it does not return the frontier
            self._kept = new, on_device(*how) if suited else FastDecoder(*how)
        return self._kept[1]

    def _in_batches(
        self,
        index: ConstraintIndex,
        options: SearchOptions,
        inputs: Sequence[Sequence[int]],
        k: int,
        prior: Prior | None,
        bar: Progress,
        search: Callable[..., list[_Result]],
    ) -> list[_Result]:
        """The plain search, in batches of inputs of similar length."""
        decoder, size = self.plain(index, options, k), options.batch_size
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        results: dict[int, _Result] = {}
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            weighed = None if prior is None else prior.among(batch)
            results.update(zip(batch, search(decoder, batch, None, weighed), strict=True))
            bar.update(len(batch))
        return [results[i] for i in range(len(inputs))]

    def _refuse_to_compile(self, index: ConstraintIndex) -> None:
        """Refuse the option ``compile`` where no search can use it.

        Raises:
            ConfigError: The model writes spans, or it or the index is of another kind.
        """
        on_grid = isinstance(self.trees, Seq2SeqTrees)
        if not self.writes_spans and on_grid and isinstance(index, ArrayIndex):
            return
        if self.writes_spans:
            why = "the generator writes spans of passages, whose scores are not computed on the device"
        elif not on_grid:
            why = f"a {type(self.model).__name__}'s decoder cannot be driven by slots"
        elif isinstance(index, UnionIndex):
            why = (
                "passages were added to its index; make one segment of it: `grls index update "
                f"{Option('merge', True)}`"
            )
        else:
            why = "its index has another backend than 'array'; make it again with `grls index`"
        raise ConfigError(f"compile=True has no effect: {why}, or leave the option out.")
