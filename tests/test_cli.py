"""Exit codes and messages of the commands."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails, refuses
from small_data import small_tokenizer, write_jsonl
from verbs import commands, fault

from grls.cli import GROUPS, VERBS, Command, main
from grls.io.progress import counted


@pytest.fixture
def data(kinds: Path) -> Path:
    return kinds / "data"


@pytest.fixture
def retriever(kinds: Path) -> Path:
    return kinds / "generative"


def test_help_may_be_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for words, options in ((["help"], ["--help"]), (["help", "train"], ["train", "--help"])):
        assert main(words) == 0
        asked = capsys.readouterr().out
        assert main(options) == 0
        assert capsys.readouterr().out == asked


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert main([]) == 2
    assert all(re.search(rf"^  {verb} ", usage, re.MULTILINE) for verb in VERBS)


@pytest.mark.parametrize("module", ["grls", "grls.cli"])
def test_python_runs_the_package_as_the_command(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--help"], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "usage: grls VERB [options]")


def _unread(program: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program whose standard output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    given = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    run = [sys.executable, "-c", program]
    try:
        return subprocess.run(run, stdout=write, stderr=subprocess.PIPE, text=True, env=given)
    finally:
        os.close(write)


@pytest.mark.parametrize(("command", "unbuffered"), [(["--help"], "1"), (["fuse", "--help"], "")])
def test_output_that_nobody_reads_is_no_error(command: list[str], unbuffered: str) -> None:
    """As with `grls fuse … | head -1`, where head has gone before the last line."""
    done = _unread(f"import sys; from grls.cli import main; sys.exit(main({command}))", unbuffered)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("ends", "code", "said"), [
    ("raise ValueError('of its own')", 1, "ValueError: of its own"),
    ("raise GrlsError('of ours')", 1, "error: of ours"),
    ("sys.exit(3)", 3, ""),
])  # fmt: skip
def test_errors_are_told_where_nobody_reads_the_output(ends: str, code: int, said: str) -> None:
    program = f"""
import sys, grls.cli
from grls.errors import GrlsError
def run(command, arguments):
    print("the first line")
    {ends}
grls.cli.Command.run = run
sys.exit(grls.cli.main(["evaluate"]))
"""
    done = _unread(program)
    assert done.returncode == code
    assert said in done.stderr


def test_standard_output_may_be_closed() -> None:
    program = "import sys; from grls.cli import main; sys.stdout = None; sys.exit(main(['--help']))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def _torch_on_a_cpu() -> None:
    torch.empty(1 << 50)


def _numpy() -> None:
    np.ones(1 << 50)


def _cuda() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity")


def _thread() -> None:
    raise RuntimeError("can't start new thread")


def _map() -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize(("cause", "command", "said"), [
    (_torch_on_a_cpu, "retrieve",
     r"\(\d+ bytes more .*\)\. Lower --search\.batch_size or --search\.beams, end"),
    (_numpy, "index", r"\(8\.00 PiB more were asked for\)\. Lower --index\.memory or --batch_size, end"),
    (_cuda, "train memorise", r"\(2\.00 GiB more .*\)\. Lower --data\.batch_size, .*_checkpointing true"),
    (_thread, "ralm", r"\. Lower --reader.window or --rerank.candidates, end"),
    (_map, "experiment", r"\. Use smaller inputs, end"),
])  # fmt: skip
def test_too_little_memory_is_one_line_that_says_what_saves_some(
    cause: Any, command: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grls.cli.Command.run", lambda command, arguments: cause())
    assert main(command.split()) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert re.match(rf"error: there is not enough memory ?{said}", told)


@pytest.mark.parametrize("error", [RuntimeError("size mismatch"), BrokenPipeError("a worker has gone")])
def test_an_error_of_another_kind_is_a_fault(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(command: str, arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr("grls.cli.Command.run", broken)
    with pytest.raises(type(error), match=str(error)):
        main(["evaluate"])


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retreive"]) == 2
    said = "error: unknown verb 'retreive'; did you mean 'retrieve'?\n`grls --help` lists them all.\n"
    assert capsys.readouterr().err == said
    assert main(["xyz"]) == 2
    assert "  retrieve  " in capsys.readouterr().err


@pytest.mark.parametrize("command", commands())
def test_help_explains_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--help", "all"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    options = re.split(r"\n  (?=-)", text)[1:]
    assert len(options) >= 3
    assert "configuration file" not in text  # jsonargparse's words for a section as a file
    for option in options:
        described = re.sub(r"\s+", " ", option).split("(")[0]
        name = described.split(" ")[0]
        if name in ("--config", "--print_config", "--recall", "--recall.help"):
            continue
        assert len(re.findall(r"[a-z]{2,}", re.sub(r"^--\S+( \S+)?", "", described))) >= 1, option


@pytest.mark.parametrize("command", commands())
def test_few_options_are_explained_at_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    text = capsys.readouterr().out
    assert len(re.findall(r"^  -", text, re.MULTILINE)) <= 25
    for section in re.findall(r"--help (\S+)`\):", text):
        with pytest.raises(SystemExit):
            main([*command.split(), "--help", section])
        options = re.findall(rf"^  --{section}\.([\w.]+)", capsys.readouterr().out, re.MULTILINE)
        assert [n for n in options if n in text or "help" in n] == options != []


def test_a_section_of_the_help_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("search --help --k 3", "train chains --help"):  # what is behind it does not hide the help
        with pytest.raises(SystemExit):
            main(command.split())
    assert "batches: data, batch_size" in " ".join(capsys.readouterr().out.split())
    assert main(["search", "--help", "hop"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no section 'hop' of options: hops, all.")


def test_verbs_are_listed_once_and_have_examples_that_can_be_typed() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(VERBS)
    examples = {name: verb.example for name, verb in VERBS.items() if verb.target}
    assert {name: fault(example) for name, example in examples.items() if example} == dict.fromkeys(
        set(examples) - {"ralm"}, ""
    )


def test_options_of_a_section_by_name_or_as_json() -> None:
    parser = Command(VERBS["explain"], "grls explain").parser()
    assert parser.parse_args(["all", "--retriever=r", "--hops.sets", "true"]).hops.sets is True
    assert parser.parse_args(["all", "--retriever=r", "--hops", '{"sets": true}']).hops.sets is True


HEAVY = ("torch", "transformers", "lightning", "sentence_transformers", "faiss", "datasets", "sklearn")
"""Each takes a second or more to load."""


def test_help_loads_nothing_that_takes_seconds() -> None:
    """Of any verb; in one process, so that what one loads is told with its name."""
    program = f"""
import contextlib, io, sys
from grls.cli import main
for command in {list(commands())!r}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    if loaded:
        sys.exit(f"grls {{command}} --help loads {{', '.join(loaded)}}")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_wrong_is_told_before_anything_is_loaded(kinds: Path, tmp_path: Path) -> None:
    bm25, data, out = kinds / "bm25", kinds / "data", tmp_path / "out"
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "b"}\n{"_id":\n')
    told = {
        f"search {bm25} q --k 0": "--k must be at least 1, got 0.",
        f"search {bm25} q -k 5": "there is no option -k; did you mean --k?",
        f"search {bm25} q --device gpu": "--device must be auto, cpu, mps, cuda, or one of several",
        f"search q {bm25}": f"the folder of the retriever comes first: `grls search {bm25} q`.",
        f"explain {bm25} --retriever q": f"the retriever is an option: `grls explain q --retriever {bm25}`.",
        "search no q": "no: no retriever here",
        f"search {'n' * 300} q": "n: no retriever here",
        f"search {bm25.parent}/bm52 q": f"make one with `grls index`; did you mean {bm25}?",
        f"serve {bm25.parent}/bm52": f"did you mean {bm25}?",
        f"tune {bm25.parent}/bm52 --data {data}": f"did you mean {bm25}?",
        f"search bm25 q --data {data}s": f"and qrels/; did you mean {data}?",
        f"index bm25 --corpus {data}s --output {out}": f"s']; did you mean {data}?",
        f"experiment {bm25.parent}/bm52 --data {data} --output {out}": f"before it; did you mean {bm25}?",
        f"retrieve {data} --data {bm25} --output {out}": "--data names a retriever, and the retriever is",
        f"retrieve bm25 --data no --output {out}": "no: no such folder; a data set is a folder with",
        f"fit no --output {out}": "corpus.jsonl, queries.jsonl and qrels/ (or give a folder of documents).",
        "explain q --retriever bm25": "bm25 needs --data: the folder of the data set",
        f"evaluate no --data {data}": "no: no such file; expected a run",
        f"prepare beir --raw {data} --out {data}/../data": "holds the files to read, and would be replaced",
        f"prepare texts --raw {data}/qrels --out {data}": "holds the files to read, and would be replaced",
        f"prepare musique --raw {data} --out {out}": f"prepared already, no raw files: `grls fit {data} --o",
        f"evaluate {data}/corpus.jsonl --data {data} --measures ndcgg": "measures: 'ndcgg' is no measure",
        f"fuse a b --output {out}": "a: no such file; expected a run",
        f"experiment no --output {out}": "no: no such file or retriever folder",
        f"tune {bm25} --data {data} --limit 0": "--limit must be at least 1, got 0.",
        f"fit {data} --output {out} --budget 5x": "expected a budget such as 30m",
        f"fit {data} --output {out} --measure ndcg_cut_10": "did you mean 'nDCG@10'?",
        f"fit {tmp_path} --output {out}": "corpus.jsonl, line 2: ",
    }
    program = f"""
import contextlib, io, sys
import grls
from grls.cli import main
from grls.errors import DataError
def check(command):
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    assert not loaded, (command, loaded)
for command, told in {told!r}.items():
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(command.split())
    assert code in (1, 2) and told in said.getvalue(), (command, said.getvalue())
    check(command)
with contextlib.suppress(DataError):
    grls.fit({str(tmp_path)!r})
check("grls.fit")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_search_by_bm25_loads_nothing_that_takes_seconds(data: Path, tmp_path: Path) -> None:
    """Neither does :func:`grls.load`: most of the time would be the import of what is not used."""
    program = f"""
import sys
import grls
from grls.cli import main
data, folder = {str(data)!r}, {str(tmp_path / "bm25")!r}
assert main(["index", "bm25", "--corpus", data, "--output", folder]) == 0
assert main(["search", folder, "otter", "--metadata=true"]) == 0
assert main(["search", "bm25", "otter", "--data", data]) == 0
assert grls.load(folder).search("otter", 2)
loaded = [name for name in {(*HEAVY, "pandas", "PIL", "huggingface_hub")!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_search_by_a_generator_loads_nothing_of_encoders_and_trainings(retriever: Path) -> None:
    unused = ("lightning", "sentence_transformers", "faiss", "datasets", "pandas", "sklearn", "peft")
    program = f"""
import sys
from grls.cli import main
assert main(["search", {str(retriever)!r}, "is the otter calm ?", "--device", "cpu"]) == 0
loaded = [name for name in {unused!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("retrieve", "r", "--outptu=o"), "there is no option --outptu; did you mean --output?"),
        (("retrieve", "r", "--beams", "3"), "there is no option --beams; did you mean --search.beams?"),
        (("search", "r", "q", "--hops.m=2"), "there is no option --hops.m; did you mean --hops.max?"),
        (("search", "r", "q", "--top_k=3"), "there is no option --top_k; did you mean --k?"),
        (("tune", "r", "--grid.hops_max=3"), "there is no option --grid.hops_max; did you mean --grid.hops?"),
        (("search", "r", "q", "--hops", "2"), "--hops: 2 cannot be read; did you mean --hops.max 2?"),
        (("fuse", "a", "--fusion=rrf"), "--fusion: rrf cannot be read; did you mean --fusion.method rrf?"),
        (("retrieve", "bm25"), "--output and --data must be given."),
        (("retrieve",), "the argument retriever and --output and --data must be given."),
        (("retrieve", "r", "--k", "many"), "--k: expected a whole number, got many."),
        (("retrieve", "r", "--search=no.yaml"), "--search: no.yaml cannot be read; give a file of YAML."),
        (("index", "m", "--index.form", "half"), "--index.form: expected one of whole, prefixes, got half."),
        (("fit", "d", "--plan"), "--plan needs a value: --plan true, or false."),
        (("fit", "d", "--budget"), "--budget needs a value."),
        (
            ("index", "bm25", "d"),
            "the argument 'd' has no place: `grls index bm25` takes only options. Write `grls index bm25 "
            "--corpus CORPUS --output OUTPUT`.",
        ),
        (
            ("check", "d", "e"),
            "the argument 'e' has no place: `grls check` takes data, and options. Write `grls check [DATA]`.",
        ),
    ],
)
def test_a_wrong_option_is_one_line_with_the_remedy(
    wrong: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called = " ".join(["grls", *wrong[: 2 if wrong[:2] == ("index", "bm25") else 1]])
    lines = refuses(capsys, *wrong).splitlines()
    section = re.search(r"--(index|search|hops|grid)\.", told)
    asked = "--help" if section is None else f"--help {section[1]}"
    assert lines == [f"error: {told}", f"`{called} {asked}` lists the options."]


def test_a_config_that_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("bugdet: 5m\n")
    text = refuses(capsys, "fit", "d", f"--config={file}")
    assert text.startswith("error: the file of --config: there is no option bugdet; did you mean budget?\n")
    file.write_text("fit.budget: 5m\n")
    assert "there is no option fit.budget; did you mean budget?\n" in refuses(
        capsys, "fit", "d", f"--config={file}"
    )
    file.write_text("budget: [x\n")
    text = refuses(capsys, "fit", "d", f"--config={file}")
    assert text.startswith("error: the file of --config is no YAML: while parsing a flow sequence")


@pytest.mark.parametrize(("key", "yaml"), [
    ("treiner", "treiner:\n  max_epochs: 1\n"),
    ("learning_rat", "model:\n  learning_rat: 1\n"),
    ("beam", "recall:\n  beam: 3\n"),
])  # fmt: skip
def test_an_unknown_key_of_a_training_config_is_named(
    key: str, yaml: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(yaml)
    assert re.search(rf"\b{key}\b", refuses(capsys, "train", "memorise", f"--config={tmp_path / 'c.yaml'}"))


def test_missing_inputs_are_named(
    data: Path, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = tmp_path / "none"
    assert f"{none}: no such folder" in fails(capsys, "check", none)
    assert f"no such folder: {none}" in fails(
        capsys, "index", str(none), f"--corpus={data}", f"--output={tmp_path / 'r'}"
    )
    said = fails(capsys, "retrieve", "bm25", f"--data={none}", f"--output={tmp_path / 'o'}")
    assert f"{none}: no such folder; a data set is a folder with corpus.jsonl, queries.jsonl and" in said
    said = fails(capsys, "retrieve", f"--data={data}", f"--output={tmp_path / 'o'}", data)
    assert "(grls.json is missing); it holds a corpus: make one of it with `grls index bm25 --corpus" in said
    assert f"{none}: no retriever here" in fails(
        capsys, "retrieve", f"--data={data}", f"--output={tmp_path / 'o'}", none
    )
    assert str(none) in fails(capsys, "retrieve", f"--data={none}", f"--output={tmp_path / 'o'}", retriever)
    assert str(none) in fails(capsys, "evaluate", f"{none}.trec", f"--data={data}")
    assert "retriever" in refuses(capsys, "retrieve", f"--data={data}", f"--output={tmp_path / 'o'}")
    assert "bm25 retrieves from the corpus of a data set folder" in fails(
        capsys, "retrieve", "bm25", f"--data={data / 'queries.jsonl'}", f"--output={tmp_path / 'o'}",
        "--split=null",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_bad_data_is_one_line_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [{"_id": "a", "text": "x"}, "{"])
    assert f"{file}, line 2: expected a JSON object" in fails(capsys, "check", tmp_path)


def test_training_on_bad_data_is_an_error_of_ours(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = tmp_path / "t"
    small_tokenizer(data).save_pretrained(tokenizer)
    options = [
        "train", "memorise", f"--output={tmp_path / 'out'}",
        "--model.generator=ScratchT5", f"--model.generator.tokenizer={tokenizer}",
        "--model.generator.d_model=16", "--model.generator.num_layers=1",
        "--trainer.accelerator=cpu",
    ]  # fmt: skip
    message = fails(capsys, *options, f"--data.data={tmp_path / 'none'}")
    assert "no such file" in message
    message = fails(capsys, *options, f"--data.data={data}", "--data.target=rest", "--model.loss=allowed")
    assert "needs target `whole`" in message
    assert not (tmp_path / "out" / "model").exists()


def test_check_prints_and_writes(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(data), f"--output={tmp_path / 'c.json'}"]) == 0
    printed = capsys.readouterr().out
    assert "10 passages" in printed
    report = json.loads((tmp_path / "c.json").read_text())
    assert report["passages"] == 10
    queries, *splits = report["checked"]
    assert (queries["kind"], queries["faults"]) == ("query", 0)
    assert queries["entries"] == sum(1 for _ in (data / "queries.jsonl").open())
    assert [split["file"] for split in splits] == [str(file) for file in sorted(data.glob("qrels/*.tsv"))]
    for file in (queries, *splits):
        assert f"{file['file']}: {counted(file['entries'], file['kind'])} checked, 0 faults" in printed


def test_check_says_what_is_the_gold(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(data, tmp_path / "copy")
    lines = (copy / "queries.jsonl").read_text().splitlines()
    more = ['{"_id": "x", "text": "who ?"}', '{"_id": "y", "text": "who ?", "evidence": ["r0"]}']
    (copy / "queries.jsonl").write_text("\n".join([*lines, *more]) + "\n")
    assert main(["check", str(copy)]) == 0
    without = "2 without (1 of them with `evidence`, which does not count beside qrels)"
    assert f"gold is that of qrels: 16 queries with a gold passage, {without}" in capsys.readouterr().out
    shutil.rmtree(copy / "qrels")
    assert main(["check", str(copy), "--output", str(tmp_path / "c.json")]) == 0
    printed = capsys.readouterr().out
    assert "no qrels, so gold is `evidence`: 17 queries with a gold passage, 1 without" in printed
    gold = {"source": "evidence", "queries": 17, "without": 1, "unused": 0}
    assert json.loads((tmp_path / "c.json").read_text())["gold"] == gold
    (copy / "queries.jsonl").write_text(more[0] + "\n")
    assert main(["check", str(copy)]) == 0
    assert "no query has a gold passage, neither in qrels nor as `evidence`" in capsys.readouterr().out


def test_check_says_that_a_corpus_alone_was_checked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.jsonl").write_bytes((data / "corpus.jsonl").read_bytes())
    assert main(["check", str(tmp_path)]) == 0
    assert "no queries and no qrels, so only the corpus was checked" in capsys.readouterr().out


def test_no_command_has_more_than_16_parameters() -> None:
    """What belongs together is a dataclass of options.

    ``--ray ADDRESS`` and its ``--workers`` say where a command runs, not what it does: they are not counted.
    """
    for command, verb in commands().items():
        parameters = set(signature(Command(verb, command).function).parameters) - {"ray", "workers"}
        assert len(parameters) <= 16, command
