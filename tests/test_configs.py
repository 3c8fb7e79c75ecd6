"""Every shipped config, the README's commands and the quickstart's, through the real entry points.

The trainings are those of ``benchmarks.trainings``. Data and models are small; everything else is as shipped.
"""

import io
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import biencoder_helpers
import pytest
import yaml
from cross_encoders import cross_encoder
from llama_small import TINY as TINY_LLAMA
from llama_small import save_llama
from small_data import scratch, tiny_bert, write_jsonl
from verbs import parsed

from benchmarks.trainings import TRAININGS, options
from data_prep.ruletaker import prepare
from data_prep.theory import TheoryOptions
from grls.cli import VERBS, main
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.models.load.build import load_tokenizer, train_tokenizer
from grls.models.load.generators import Pretrained

ROOT = Path(__file__).parents[1]
STAGES = ("memorise", "retrieve")
MADE = ("quickstart", "ruletaker", "ruletaker-paper", "ruletaker-relations")
"""Sets that are generated."""
SETTINGS = {
    "paper": {
        "memorise": (3, 240, 1e-05, "rest"),
        "retrieve": (30, 120, 1e-04),
        "biencoder": (30, 120, 1e-04),
    },
    "released": {
        "memorise": (150, 120, 1e-05, "rest"),
        "retrieve": (150, 120, 1e-04),
        "biencoder": (150, 120, 1e-04),
    },
}
"""Epochs, batch size, rate and target of arXiv 2204.13596 and of its released configuration."""


def sets_with(run: str) -> list[str]:
    """The data sets that have such a training."""
    return sorted(name for name, runs in TRAININGS.items() if run in runs)


def train(name: str, run: str, *more: str) -> None:
    """A training of a set as shipped, but for some options."""
    assert main(["train", *options(name, run), *more]) == 0, (name, run)


QUICK = (
    "--trainer.max_epochs=1",
    "--trainer.check_val_every_n_epoch=1",
    "--trainer.limit_train_batches=2",
    "--trainer.accelerator=cpu",
    "--data.dev_size=8",
)
TINY = ("d_model=32", "d_ff=64", "d_kv=8", "num_layers=1", "num_decoder_layers=1", "num_heads=4")


def tiny_model(data: str) -> list[str]:
    """Options that put a small T5 from scratch in the place of any generator."""
    options = ["--model.generator=ScratchT5", f"--model.generator.data={data}"]
    return options + [f"--model.generator.{option}" for option in TINY]


def small_encoder(data: str) -> str:
    """A small T5 from scratch, in the place of any encoder."""
    for part in scratch(Path(data)).load():
        part.save_pretrained("t5")
    return "t5"


def small(folder: Path) -> None:
    prepare(folder, TheoryOptions(6, 6, 10, max_depth=3), train=24, dev=4, test=6)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with the repository's configs, where relative paths lead."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


GUIDES = (
    "train", "query-generation", "spans", "rescoring", "compare", "fusion", "multi-hop", "gpu", "hybrid",
    "scores", "riches", "programs", "ralm", "filters", "explain", "data-sets", "serve", "page",
)  # fmt: skip
"""The guides of ``docs/guides`` whose commands need others to be run before them; the rest follows."""


def write_titled(folder: str, queries: str) -> None:
    """The passages of ``data/mine`` with titles and tags, and a query of each."""
    passages = [json.loads(line) for line in Path("data/mine/corpus.jsonl").read_text().splitlines()]
    titled = [
        one | {"title": f"Fact {one['_id']}", "metadata": {"tags": ["facts", "rules"]}} for one in passages
    ]
    asked = [
        {"_id": f"q{n}", "text": f"what is {one['text']}", "evidence": [one["_id"]]}
        for n, one in enumerate(passages)
    ]
    write_jsonl(Path(folder) / "corpus.jsonl", titled)
    write_jsonl(Path(queries), asked)


def readme_commands() -> list[list[str]]:
    """The commands in the code blocks of README, guides and other pages: arguments of `grls`, or `cp`."""
    names = {file.stem for file in (ROOT / "docs" / "guides").glob("*.md")}
    assert names >= set(GUIDES)
    guides = [ROOT / "docs" / "guides" / f"{name}.md" for name in (*GUIDES, *sorted(names - set(GUIDES)))]
    others = [ROOT / "docs" / name for name in ("start/your-data.md", "reliability.md")]
    texts = [file.read_text() for file in (ROOT / "README.md", *guides, *others)]
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```", "\n".join(texts), re.DOTALL | re.MULTILINE)
    blocks = [text for language, text in fences if language in ("", "sh")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("grls ")) for line in lines if line.startswith(("grls ", "cp "))]


def makefile_commands(target: str) -> list[list[str]]:
    """The recipe of a Makefile target, as an argument list a command."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert recipe is not None
    return [shlex.split(line.replace("$(BIN)/", "")) for line in recipe.group(1).splitlines()]


def test_every_config_is_run_here() -> None:
    """By a training of a set, as the paper's settings, in the README, or to make data."""
    shipped = {str(file.relative_to(ROOT / "configs"))[:-5] for file in (ROOT / "configs").rglob("*.yaml")}
    trained = {
        layer for runs in TRAININGS.values() for training in runs.values() for layer in training.layers
    }
    named = {f"{name}/{stage}" for name, stages in SETTINGS.items() for stage in stages}
    words = {word for command in readme_commands() for word in command}
    read = {word.removeprefix("configs/")[:-5] for word in words if word.startswith("configs/")}
    others = {"fusion", "sparse", "multi-vector"}  # in test_fuse.py and test_encoded.py
    others |= {"dpo", "kto", "listwise"}  # in test_ranking.py
    others |= {f"prepare/{name}" for name in MADE}
    others |= {f"paper/dsp-{name}" for name in PROGRAMS}
    others |= {f"single-step/{stage}" for stage in ("biencoder", "chains")}  # in test_single_step_recipe
    assert shipped == trained | named | read | others


def test_single_step_recipe(workplace: Path) -> None:
    """The recipe of a search in a single step, with small models in the place of the packaged ones."""
    small(workplace / "data" / "mine")
    language_model(workplace, "data/mine")
    layers = ["--config", "configs/biencoder.yaml", "--config", "configs/single-step/biencoder.yaml"]
    quick = ["--fit.epochs=1", "--fit.max_steps=2", "--fit.batch_size=8"]
    options = [f"--source={small_encoder('data/mine')}", "--kind=auto", *quick]
    assert main(["train", "biencoder", *layers, "--data=data/mine", "--output=runs/b", *options]) == 0
    layers = ["--config", "configs/chains.yaml", "--config", "configs/single-step/chains.yaml"]
    options = ["--data.data=data/mine", "--output=runs/c", "--model.generator.name_or_path=lm", *QUICK]
    assert main(["train", "chains", *layers, *options]) == 0
    assert (Path("runs/c/model") / "identifiers" / "identifiers.json").is_file()


def test_recipes_lie_anywhere() -> None:
    """For any data set and any folder: none says where it writes, none names a place of a machine."""
    for file in (ROOT / "configs").rglob("*.yaml"):
        text = "\n".join(line.partition("#")[0] for line in file.read_text().splitlines())
        assert not re.search(r"^output:", text, re.MULTILINE), file
        assert not re.search(r"(^|[\s\[\"'])(/|~|\w:\\)", text), file


@pytest.mark.parametrize("name", sets_with("memorise"))
def test_shipped_configs_train(name: str, workplace: Path) -> None:
    small(workplace / "data" / name)
    for stage in STAGES:
        train(name, stage, *(tiny_model(f"data/{name}") if stage == "memorise" else []), *QUICK)
        assert (workplace / "runs" / name / stage / "model" / "config.json").is_file()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_settings_and_the_released_ones(name: str, workplace: Path) -> None:
    """A small model in the place of T5-large; what it was trained with is what the names promise."""
    small(workplace / "data" / "mine")
    for stage in STAGES:
        layers = [f"--config=configs/{layer}.yaml" for layer in (stage, f"{name}/{stage}")]
        given = ["--data.data=data/mine", f"--output=runs/{stage}", *tiny_model("data/mine")]
        quick = [o for o in QUICK if not o.startswith(("--trainer.max_epochs", "--trainer.check_val"))]
        assert main(["train", stage, *layers, *given, *quick, "--trainer.max_steps=1"]) == 0
        used = yaml.safe_load((workplace / f"runs/{stage}/logs/version_0/config.yaml").read_text())
        model, data = used["model"], used["data"]
        expected = SETTINGS[name][stage]
        target = [data["target"]] if stage == "memorise" else []
        assert (
            used["trainer"]["max_epochs"],
            data["batch_size"],
            model["learning_rate"],
            *target,
        ) == expected
        schedule = ("constant", 0.0) if stage == "memorise" else ("linear", 0.1)
        assert (model["optimizer"], model["schedule"], model["warmup"]) == ("adafactor", *schedule)
    assert main(["index", "runs/retrieve/model", "--corpus=data/mine", "--output=runs/retriever"]) == 0
    for folder in ("memorise", "retrieve", "retriever"):
        assert Codec(load_tokenizer(f"runs/{folder}/model")).closes == (name == "paper"), folder
    layers = [f"--config=configs/{layer}.yaml" for layer in ("biencoder", f"{name}/biencoder")]
    source = f"--source={small_encoder('data/mine')}"
    given = ["--data=data/mine", "--output=runs/bi", source, "--kind=auto", "--fit.max_steps=1"]
    assert main(["train", "biencoder", *layers, *given]) == 0
    used = biencoder_helpers.settings(workplace / "runs/bi")["fit"]
    assert (used["epochs"], used["batch_size"], used["learning_rate"]) == SETTINGS[name]["biencoder"]
    assert (used["optimizer"], used["schedule"], used["warmup"]) == ("adafactor", "linear", 0.1)


def test_the_papers_window_of_ralm(workplace: Path) -> None:
    """Stride, query and window of arXiv 2302.00083, and a text that is cut by what exceeds the window."""
    small(workplace / "data" / "mine")
    language_model(workplace, "data/mine")
    Path("test.txt").write_text("anna is quiet . bob is kind . " * 200)
    given = ["--model=lm", "--text=test.txt", "--data=data/mine", "--retriever=bm25", "--output=runs/ralm"]
    layer = ["--config", "configs/paper/ralm.yaml", "--device=cpu", "--limit=1100"]
    assert main(["ralm", *layer, *given, "--rerank.by=oracle"]) == 0
    used = json.loads((workplace / "runs/ralm.json").read_text())["settings"]
    window = ("stride", "query_tokens", "documents", "document_tokens", "window", "cut", "candidates")
    assert [used[name] for name in window] == [4, 32, 1, 256, 1024, 1, 16]


PROGRAMS = {
    "openqa": {"k": 7, "written_queries": 0, "branches": 20, "labeled": 13, "keep": "passage"},
    "multihop": {
        "k": 5,
        "rounds": 2,
        "written_queries": 10,
        "branches": 5,
        "summary": "likeliest",
        "passages_read": 5,
    },
    "conversational": {"written_queries": 10, "fuse_question": True, "own_replies": True, "keep": "overlap"},
}
"""What arXiv 2212.14024 says of its programs."""


@pytest.mark.skipif(find_spec("dspy") is None, reason="the extra dsp is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_papers_programs(name: str, workplace: Path) -> None:
    small(workplace / "data" / "mine")
    language_model(workplace, "data/mine")
    given = ["--model=lm", "--data=data/mine", "--retriever=bm25", f"--output=runs/{name}", "--device=cpu"]
    talks = name == "conversational"
    first, second = read_split("data/mine", "test")[0][:2]
    if talks:  # the second question follows on the first
        file = Path("data/mine/queries.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
        history = [[first.text, "the reply of the data"]]
        write_jsonl(
            file, [r | ({"metadata": {"history": history}} if r["_id"] == second.id else {}) for r in records]
        )
    few = [f"--limit={1 + talks}", "--dsp.demonstrations.examples=2", *FEW["dsp"]]
    assert main(["answer", "dsp", name, f"--config=configs/paper/dsp-{name}.yaml", *given, *few]) == 0
    header, record, *more = map(json.loads, Path(f"runs/{name}.trace.jsonl").read_text().splitlines())
    for last in more:
        asked = [step["inputs"]["history"] for step in last["trace"] if step["kind"] == "lm"]
        own = [line for line in (first.text, record["answer"]) if line]
        assert {*asked} == {"\n".join(" ".join(line.split()) for line in own)}
    used = header["settings"]["demonstrations"] | header["settings"]
    assert {option: used[option] for option in PROGRAMS[name]} == PROGRAMS[name]
    assert (used["how"], used["count"], used["temperature"]) == ("bootstrap", 3, 0.7)
    runs = [step for step in record["trace"] if step["kind"] == "branch"]
    assert len(runs) == (used["branches"] if used["branches"] > 1 else 0)


CAUSAL = "--model.generator.name_or_path=lm"
"""A small model in the place of the pretrained one."""
ALONE = "--data.teacher=null"
"""No teacher, who would have to be trained."""
SHORT = ("--trainer.max_steps=-1", "--trainer.val_check_interval=1.0")
BESIDE = (CAUSAL, "--data.prior.retrievers=[bm25]", *SHORT)
HOPS = (CAUSAL, ALONE, "--data.mix.size=8")
RESCORE = (CAUSAL, ALONE, "--data.rescore.retrievers=[bm25]", *SHORT)
QUOTES = (*SHORT, "--quotes.limit=2", "--quotes.max_new_tokens=6", "--quotes.beams=2")
SWAPS: dict[str, tuple[str, ...]] = {
    "riches": QUOTES, "causal": (CAUSAL, ALONE), "spans": (CAUSAL, ALONE), "beside": BESIDE,
    "spans-beside": BESIDE, "causal-mixed": HOPS, "spans-hops": HOPS, "spans-pseudo": HOPS,
    "spans-rescore": (*RESCORE, "--model.freeze_layers=0"),
    "hops-rescore": (*RESCORE, "--model.freeze_layers=0"), "query-generator": SHORT, "mixed": (),
}  # fmt: skip
"""Training -> what is otherwise than shipped: small models, BM25 for a bi-encoder that would be trained."""
LIKE_OTHERS = ("spans-beside", "causal-mixed", "spans-pseudo", "hops-rescore")
"""Trainings with the options of others together."""
USED = "logs/version_0/config.yaml"
WRITTEN = {
    "spans": (("model/identifiers/identifiers.json", '"words": 8'), (USED, "words: 8 drawn: 6")),
    "spans-rescore": (("model/rescore.json", '"tokens": 128'),),
    "hops-rescore": (("model/rescore.json", '"tokens": 128'),),
    "entailmentbank-wt spans-rescore": ((USED, "passages: 10 right:"),),
    "entailmentbank-wt hops-rescore": ((USED, "passages: 7 right:"),),
    "strategyqa spans-rescore": ((USED, "passages: 8 right:"),),
}
"""Training, or set and training -> files of the output, and what they hold."""


@pytest.mark.parametrize(
    ("run", "name"),
    [
        pytest.param(run, name, marks=pytest.mark.slow if number or run in LIKE_OTHERS else ())
        for run in SWAPS
        for number, name in enumerate(sets_with(run))
    ],
)
def test_shipped_trainings(run: str, name: str, workplace: Path) -> None:
    """What makes a training another one is as shipped: its layers, and the options of its set."""
    data, runs = workplace / "data" / name, workplace / "runs" / name
    small(data)
    language_model(workplace, f"data/{name}")
    runs.mkdir(parents=True)
    (runs / "pseudo.jsonl").write_text((data / "queries.jsonl").read_text())
    swaps = [*SWAPS[run]]
    if run in ("riches", "query-generator"):
        scratch = any(layer.startswith("scratch/") for layer in TRAININGS[name][run].layers)
        swaps += [f"--model.generator.{option}" for option in TINY] if scratch else [CAUSAL]
    if run == "mixed":
        memorise = ["--config=configs/memorise.yaml", f"--output=runs/{name}/memorise"]
        given = [f"--data.data=data/{name}", *tiny_model(f"data/{name}")]
        assert main(["train", "memorise", *memorise, *given, *QUICK]) == 0
    train(name, run, *swaps, *QUICK)
    model = runs / run / "model"
    assert (model / "config.json").is_file()
    assert (model / "identifiers").is_dir() == (run.startswith("spans") or run == "hops-rescore")
    assert (model / "query-generator.json").is_file() == (run == "query-generator")
    for file, text in (*WRITTEN.get(run, ()), *WRITTEN.get(f"{name} {run}", ())):
        assert text in " ".join((runs / run / file).read_text().split())


@pytest.mark.parametrize("name", MADE)
def test_shipped_configs_make_data(name: str, workplace: Path) -> None:
    few = [f"--config=configs/prepare/{name}.yaml", "--train=9", "--dev=2", "--test=3"]
    assert main(["prepare", "ruletaker", *few]) == 0
    assert len(read_split(f"data/{name}", "test")[0]) == 3


def test_base_configs_are_the_papers(workplace: Path) -> None:
    for stage, rate, schedule in (("memorise", 1e-5, "constant"), ("retrieve", 1e-4, "linear")):
        options = parsed(["train", stage, f"--config=configs/{stage}.yaml", "--data.data=data/x"])
        model, data, trainer = (options[name] for name in ("model", "data", "trainer"))
        assert (model.optimizer, model.learning_rate, model.schedule) == ("adafactor", rate, schedule)
        assert model.generator == Pretrained("google-t5/t5-large")
        assert (data.batch_size, trainer.max_epochs) == (120, 150)


def files_of_readme(workplace: Path) -> None:
    """What the README's commands on filters and updates read, beside a data set with metadata."""
    corpus = workplace / "data" / "mine" / "corpus.jsonl"
    lines = [json.loads(line) for line in corpus.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["metadata"] = {"year": 1990 + number % 20, "lang": ("de", "fr", "en")[number % 3]}
    lines.append({"_id": "old", "text": "fred is old .", "metadata": {}})  # no query needs it
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pairs = [(query.id, line["_id"]) for query in read_split("data/mine", "test")[0] for line in lines[:9]]
    (workplace / "candidates.tsv").write_text("".join(f"{query}\t{passage}\n" for query, passage in pairs))
    (workplace / "old-ids.txt").write_text("old\n")
    (workplace / "notes").mkdir()
    (workplace / "notes" / "otters.md").write_text("# Otters\n\nA holt is the den of an otter.\n")
    (workplace / "new").mkdir()
    (workplace / "new" / "corpus.jsonl").write_text(
        json.dumps({"_id": "new-1", "text": "anna is quiet ."}) + "\n"
    )


def language_model(workplace: Path, data: str = "data/mine") -> None:
    """A small causal model in the folder ``lm``, whose tokenizer can write the data set and the markers."""
    tokenizer = train_tokenizer(workplace / data, 400, ["question: « »\nanswer:"])
    save_llama(workplace / "lm", tokenizer, 4096, **TINY_LLAMA)


FEW = {
    "riches": ["--search.max_new_tokens=6", "--search.beams=2"],
    "direct": ["--reader.max_new_tokens=6"],
    "follow-up": ["--reader.max_new_tokens=6"],
    "dsp": ["--dsp.calls.max_new_tokens=6", "--dsp.calls.attempts=1", "--dsp.demonstrations.examples=2"],
}
"""What makes ``grls answer`` quick, by its names."""


def test_readme_commands(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small(workplace / "data" / "mine")
    files_of_readme(workplace)
    commands = readme_commands()
    assert {command[0] for command in commands} == {*VERBS, "cp"} - {"push"}  # which needs the hub
    assert len(commands) >= 50
    asked = read_split("data/mine", "test")[0][0].id
    for command in commands:
        if command[0] == "serve":
            continue  # it serves until a signal: tests/serve
        if command[0] == "cp":
            subprocess.run(command, check=True)
            continue
        given = command[:2] if "--tokenizer" in command else [*command]  # that is on the hub
        given = [asked if argument == "QUERY-ID" else argument for argument in given]
        if "PATH/OR/HUB/NAME" in " ".join(command):
            if not (workplace / "lm").is_dir():
                language_model(workplace)
            given = [argument.replace("PATH/OR/HUB/NAME", "lm") for argument in given]
        if "PATH/OR/HUB/CROSS-ENCODER" in command:
            cross_encoder(workplace / "reads")
            given = [argument.replace("PATH/OR/HUB/CROSS-ENCODER", "reads") for argument in given]
        if "data/mine-split" in command:  # the data set of this test has its splits
            given = given[: given.index("--ratios")]
        if command[:2] == ["index", "all-MiniLM-L6-v2"]:  # the packaged model is an extra
            given[1] = str(tiny_bert(workplace / "bert"))
        if command[:2] == ["identify", "codes"]:
            given[given.index("all-MiniLM-L6-v2")] = str(tiny_bert(workplace / "bert"))
            given += ["--options.size=4"]  # the corpus is small
        elif command[0] == "identify" and command[1] in ("field", "queries"):
            write_titled("data/titled", "titled.jsonl")
            given = [
                {"data/mine": "data/titled", "runs/mine/pseudo.jsonl": "titled.jsonl"}.get(g, g)
                for g in given
            ]
        elif command[:2] == ["identify", "union"]:  # of the same passages
            given[3] = '["runs/mine/titles", "runs/mine/queries"]'
            given[5] = "data/titled"
        if command[:2] == ["prepare", "propositions"]:
            given += ["--limit=2", "--max_new_tokens=6", "--device=cpu"]
        if command[:2] == ["prepare", "pseudo-queries"]:  # what an untrained model writes leads nowhere
            given += ["--retrievers=[]", "--limit=4", "--device=cpu"]
        if command[0] == "answer":
            if command[1] == "dsp" and find_spec("dspy") is None:
                continue  # an extra
            given += ["--limit=1", "--device=cpu", *FEW[command[1]]]
        if command[0] == "judge":
            asks = [f"{query.text}\n1\n" for query in read_split("data/mine", "test")[0][:2]]
            monkeypatch.setattr("sys.stdin", io.StringIO("".join(asks)))
        if command[0] == "fit":  # the packaged models are extras
            given += ["--biencoder=none", "--generator=none"]
        if command[0] == "ralm":
            Path("test.txt").write_text("anna is quiet . bob is kind . " * 4)
            given += ["--device=cpu"]
        if "scores.jsonl" in command:
            learned = read_split("data/mine", "train")[0]
            ids = [passage.id for passage in Corpus.read("data/mine")]
            pairs = [{"query": query.id, "passage": i, "score": 0.0} for query in learned for i in ids]
            Path("scores.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
        if command[:2] == ["train", "reranker"]:
            given += ["--fit.epochs=1", "--max_tokens=64", "--device=cpu"]  # as long as ``reads`` can read
        elif command[0] == "train" and command[1] != "biencoder":
            given += QUICK
            if "memorise" in " ".join(command[:3]):
                given += tiny_model("data/mine")
            if "configs/default/chains.yaml" in command:  # the packaged model is an extra
                given += ["--model.generator.name_or_path=lm"]
        if command[:2] == ["train", "biencoder"]:
            given += [f"--source={small_encoder('data/mine')}", "--kind=auto", "--fit.batch_size=8"]
            given += ["--fit.epochs=1", "--fit.max_steps=2"]
        assert main(given) == 0, given
    assert "recall" in capsys.readouterr().out
    for name in ("report.html", "why.json"):
        assert (workplace / "runs" / "mine" / name).is_file()


def test_quickstart_commands(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prep, remove, *commands = makefile_commands("quickstart")
    assert prep == ["grls", "prepare", "ruletaker", "--config", "configs/prepare/quickstart.yaml"]
    left = [f"runs/quickstart/{stage}/checkpoints" for stage in ("memorise", "retrieve")]
    assert remove == ["rm", "-rf", *left]  # by a killed quickstart
    small(workplace / "data" / "quickstart")
    for command in commands:
        assert command[0] == "grls"
        more = list(QUICK) if command[1] == "train" else []
        assert main([*command[1:], *more]) == 0, command
    metrics = json.loads((workplace / "runs" / "quickstart" / "metrics.json").read_text())
    assert set(metrics["graph"]) >= {"success", "node_number", "start_node", "end_node", "missing_edge"}
    assert capsys.readouterr().out.count("\nquery ") == 3
