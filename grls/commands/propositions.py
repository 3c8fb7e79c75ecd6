"""``grls prepare propositions``: statements of one fact each, as keys for ``grls answer riches``."""

from __future__ import annotations

from time import perf_counter

from grls.cluster.options import USUAL_WORKERS, WorkerOptions
from grls.errors import DataError, at_least
from grls.io.ending import quiet
from grls.io.files import refuse_unwritable
from grls.io.progress import Progress, counted


def propositions(
    *,
    data: str,
    model: str,
    output: str,
    chat: bool = False,
    examples: bool | None = None,
    template: str = "",
    fallback: bool = True,
    max_new_tokens: int = 256,
    longest: int = 300,
    batch_size: int = 8,
    limit: int | None = None,
    device: str = "auto",
    ray: str | None = None,
    workers: WorkerOptions = USUAL_WORKERS,
) -> None:
    """Let a language model write propositions of every passage, keys for `grls answer riches`.

    OUTPUT holds one proposition a line, with the passage it comes from. A run that was ended resumes when it
    is called again; OUTPUT.manifest.json refuses to resume with other options.

    Args:
        data: Data set folder, or its corpus.jsonl.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: JSONL file to write.
        chat: Put the prompt into the chat template of the model.
        examples: Put the task and two examples into the prompt; null: for causal models. An encoder-decoder,
            fine-tuned for the task, reads only the passage.
        template: Form of a passage in the prompt, such as 'Title: {title}. Content: {text}'; empty: title and
            text.
        fallback: Take the sentences of a passage for which the model writes nothing usable.
        max_new_tokens: Length limit of what is written for a passage.
        longest: Characters of a proposition; longer ones are left out.
        batch_size: Passages read together.
        limit: Number of first passages to write propositions for; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        ray: Address of a Ray cluster whose workers write the propositions: HOST:PORT, auto, or local for a
            cluster on this machine. All its machines must see the files.
        workers: How many workers, and their shards.
    """
    from grls.answer.riches.proposition_file import PropositionFile, PropositionWork, propositions_by_workers
    from grls.cluster.options import workers_of

    quiet()
    sharing = workers_of(ray, workers)
    at_least(1, limit=limit, batch_size=batch_size)
    refuse_unwritable(output)
    reading = (data, model, chat, examples, template, fallback)
    asked = PropositionWork(*reading, max_new_tokens, longest, batch_size, limit, device)
    opened = asked.opened()
    file = PropositionFile(output, opened.origin)
    tally = file.tally
    names = sorted(tally.passages)
    numbers = opened.corpus.numbers(names)
    strange = [name for name, number in zip(names, numbers, strict=True) if number is None]
    if strange:
        raise DataError(
            f"{strange[0]!r} is no passage of {opened.corpus.source}; give another --output.", output
        )
    before = len(tally.passages)
    start = perf_counter()
    if sharing is None:
        with Progress(opened.passages, "propositions", "passages", before) as bar:
            opened.write(opened.batches, file, bar.update)
    else:
        propositions_by_workers(opened, asked, file, sharing)
    written, seconds = opened.passages - before, perf_counter() - start
    passages = len(tally.passages)
    print(
        f"{counted(passages, 'passage')}, {counted(tally.propositions, 'proposition')} "
        f"({tally.propositions / passages:.2f} each); "
        f"instead, sentences of {counted(tally.sentences, 'passage')}; nothing of {tally.none:,}"
    )
    if tally.dropped:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(tally.dropped.items()))
        print(f"left out of what the model wrote: {reasons}")
    if written:
        print(f"{counted(written, 'passage')} in this run, {seconds / written:.2f} s each")
