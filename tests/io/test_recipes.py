"""``--config`` takes local files and names of recipes."""

from pathlib import Path

import pytest
from failing import raises

from grls.cli import main
from grls.errors import ConfigError
from grls.io.recipes import config_file, with_recipes

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_recipe_has_its_name_with_and_without_folder_and_ending() -> None:
    for file in CONFIGS.rglob("*.yaml"):
        name = str(file.relative_to(CONFIGS))
        for form in (name, name.removesuffix(".yaml"), f"configs/{name}"):
            assert config_file(form) == str(file)


def test_a_local_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "memorise.yaml").write_text("{}")
    assert config_file("memorise.yaml") == "memorise.yaml"
    assert config_file("memorise") == str(CONFIGS / "memorise.yaml")
    (tmp_path / "memorise").mkdir()
    assert config_file("memorise") == str(CONFIGS / "memorise.yaml")


@pytest.mark.parametrize("value", ["/nowhere/memorise.yaml", "{k: 3}", "k: 3", "", "../memorise.yaml"])
def test_paths_and_text_stay_as_they_are(value: str) -> None:
    assert config_file(value) == value


def test_only_values_of_the_option_are_names() -> None:
    line = ["--output", "memorise", "--config=memorise", "--config", "retrieve", "--data", "retrieve"]
    assert with_recipes(line) == [
        "--output", "memorise", f"--config={CONFIGS / 'memorise.yaml'}",
        "--config", str(CONFIGS / "retrieve.yaml"), "--data", "retrieve",
    ]  # fmt: skip
    assert with_recipes(["--config"]) == ["--config"]


def test_an_unknown_name_lists_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"config=\"memorize\.yaml\": .*Near names: .*\bmemorise\b"):
        config_file("memorize.yaml")
    raises(ConfigError, r"default/chains", config_file, "configs/defaults/chain.yaml")


def test_a_verb_and_a_training_read_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    for command, told in (
        ("train memorise --config memorise", "t5-large"),
        ("index m --config sparse", "kind"),
    ):
        with pytest.raises(SystemExit) as end:
            main([*command.split(), "--print_config"])
        assert end.value.code == 0
        assert told in capsys.readouterr().out


def test_a_preparation_reads_a_recipe(tmp_path: Path) -> None:
    few = ["--out=data", "--train=9", "--dev=2", "--test=3"]
    assert main(["prepare", "ruletaker", "--config=prepare/quickstart", *few]) == 0
    assert (tmp_path / "data" / "corpus.jsonl").is_file()
