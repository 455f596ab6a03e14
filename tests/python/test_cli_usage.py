"""The command line itself: help, exit codes, precedence, and input that means harm."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli import Cli

VERBS = [
    "add", "import", "search", "list", "get", "update", "delete", "history", "ask", "chat",
    "encode", "stats", "doctor", "compact", "bench ttft", "demo", "serve", "keys create",
    "keys list", "keys rotate", "keys revoke", "quota set", "quota list", "export", "backup",
    "forget", "verify",
]  # fmt: skip


def refused(cli: Cli, code: int, *words: str | bytes, **options: Any) -> str:
    """Checks the code, that nothing was printed and that the error is one line."""
    result = cli(*words, **options)
    assert result.code == code, (words, result)
    assert result.out == ""
    assert result.err.startswith("inferscale: ")
    assert result.err.count("\n") == 1
    return result.err


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_two_examples(cli: Cli, verb: str) -> None:
    text = cli.ok(*verb.split(), "--help").out
    assert text.count(f"inferscale {verb}") >= 2
    assert "Examples:" in text


def test_help_names_every_verb_and_no_secret(cli: Cli) -> None:
    text = cli.ok("--help", env={"INFERSCALE_EMBED_KEY": "s3cret"}).out
    for verb in VERBS:
        assert verb.split()[0] in text
    assert "INFERSCALE_DATA_DIR" in text
    assert "s3cret" not in text
    assert cli.ok("--version").out.startswith("inferscale ")


def test_usage_errors(cli: Cli) -> None:
    refused(cli, 2)
    refused(cli, 2, "nonsense")
    assert "--nonsense" in refused(cli, 2, "list", "--nonsense")
    refused(cli, 2, "get")
    refused(cli, 2, "search", "two", "words")
    refused(cli, 2, "list", "-o", "xml")
    refused(cli, 2, "list", "--facts", "many")
    refused(cli, 2, "list", "--window", "sideways(3)")
    refused(cli, 2, "ask", "x", "--mode", "wrong")
    refused(cli, 2, "add", "x", "--when", "yesterday")
    refused(cli, 2, "add", "x", "--metadata", "[1]")
    refused(cli, 2, "search", "x", "--filter", '{"created_at":')
    refused(cli, 2, "bench", "ttft", "--facts", "-1")
    refused(cli, 2, "chat", "-o", "json")


def test_flag_beats_environment_beats_file_beats_default(cli: Cli) -> None:
    cli.ok("add", "of the default user")
    for user in ("flag", "environment", "file"):
        cli.ok("add", f"of the user {user}", "--user", user)
    config = cli.home / ".config" / "inferscale.toml"

    def user_seen(*words: str, **env: str) -> str:
        return str(cli.json("list", *words, env=env)["facts"][0]["user"])

    assert user_seen() == "default"
    config.parent.mkdir()
    config.write_text('# mine\nuser = "file"\n')
    assert user_seen() == "file"
    assert user_seen(INFERSCALE_USER="environment") == "environment"
    assert user_seen("--user", "flag", INFERSCALE_USER="environment") == "flag"
    other = cli.home / "other.toml"
    other.write_text('user = "flag"\noutput = "table"\n')
    assert user_seen(INFERSCALE_CONFIG=str(other)) == "flag"
    assert user_seen("--config", str(config), INFERSCALE_CONFIG=str(other)) == "file"
    refused(cli, 2, "list", "--config", str(cli.home / "missing.toml"))


def test_an_unknown_key_of_a_file_is_named(cli: Cli) -> None:
    config = cli.home / "bad.toml"
    config.write_text('user = "x"\nmodle = "y"\n')
    assert "'modle'" in refused(cli, 2, "list", "--config", str(config))


def test_a_bad_key_is_not_shown(cli: Cli) -> None:
    env = {
        "INFERSCALE_EMBED_URL": "http://127.0.0.1:9/v1",
        "INFERSCALE_EMBED_NAME": "m",
        "INFERSCALE_EMBED_KEY": "s3cret-key",
        "INFERSCALE_EMBED_MODEL": "",
    }
    for words in (("add", "x", "-vv"), ("doctor", "-vv")):
        result = cli(*words, env=env)
        assert result.code == 1
        assert "s3cret" not in result.out + result.err


def test_hostile_texts(cli: Cli) -> None:
    refused(cli, 2, "add", "")
    refused(cli, 2, "add", " \n ")
    assert "UTF-8" in refused(cli, 2, "add", b"caf\xe9")
    assert "UTF-8" in refused(cli, 2, "search", b"caf\xe9")
    assert "UTF-8" in refused(cli, 2, "list", b"--user", b"\xff")
    huge = b"a" * (1 << 20)
    message = refused(cli, 2, "add", stdin=huge)
    assert len(message) < 1000
    refused(cli, 2, "add", stdin=b"\x00\xff\xfe" * 100)
    assert cli.json("list")["facts"] == []
    cli.ok("add", "a\x1b[2Jb\u202ec")
    assert "\x1b" not in cli.ok("list").out
    assert "\u202e" not in cli.ok("list").out


def test_hostile_files(cli: Cli, tmp_path: Path) -> None:
    assert "missing.jsonl" in refused(cli, 3, "import", str(tmp_path / "missing.jsonl"))
    assert "folder" in refused(cli, 2, "import", str(tmp_path))
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    assert cli("import", str(empty)).code == 2
    noise = tmp_path / "noise.bin"
    noise.write_bytes(bytes(range(256)) * 500)
    assert cli("import", str(noise), "--format", "jsonl", "--no-encode").code == 2
    big = tmp_path / "big.jsonl"
    big.write_text('{"text": "%s"}\n{"text": "small"}\n' % ("x" * (1 << 20)))
    result = cli.ok("import", str(big), "--no-encode", "-o", "json")
    assert (result.json["added"], result.json["skipped"]) == (1, 1)


def test_hostile_models(cli: Cli, chat_model: Path, embed_model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with chat_model.open("rb") as whole:
        cut.write_bytes(whole.read(3 << 20))
    text = tmp_path / "text.gguf"
    text.write_text("no model at all")
    for model in (str(cut), str(text), str(tmp_path / "missing.gguf"), str(tmp_path),
                  str(embed_model)):  # fmt: skip
        assert len(refused(cli, 1, "ask", "x", "--model", model)) > 30
    refused(cli, 1, "add", "x", "--embed-model", str(cut))
    assert "--model" in refused(cli, 1, "ask", "x", env={"INFERSCALE_MODEL": ""})
    assert "--embed-model" in refused(cli, 1, "add", "x", env={"INFERSCALE_EMBED_MODEL": ""})


def test_doctor_says_what_is_wrong(cli: Cli, embed_model: Path) -> None:
    report = cli.json("doctor")
    assert report["ok"]
    assert [check["name"] for check in report["checks"]] == [
        "versions", "data", "disk", "facts", "kv", "files",
        "embedder", "codec", "model", "self-test", "quality",
    ]  # fmt: skip
    assert not cli.data_dir.exists()
    sick = cli("doctor", "--model", str(embed_model), "-o", "json")
    assert sick.code == 1
    assert not sick.json["ok"]
    bad = [check for check in sick.json["checks"] if check["state"] == "bad"]
    assert [check["name"] for check in bad] == ["model"]
    assert bad[0]["advice"]


def test_a_file_in_the_place_of_the_data(cli: Cli) -> None:
    cli.data_dir.write_text("in the way")
    refused(cli, 1, "list")
    assert cli("doctor").code == 1


def test_a_damaged_database_is_refused_and_left_alone(cli: Cli) -> None:
    cli.ok("add", "x")
    database = cli.data_dir / "memory.db"
    for rest in cli.data_dir.glob("memory.db-*"):
        rest.unlink()
    damaged = b"no database" * 1000
    database.write_bytes(damaged)
    refused(cli, 1, "list")
    assert cli("doctor").code == 1
    assert database.read_bytes() == damaged


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_can_not_be_written(cli: Cli) -> None:
    cli.data_dir.mkdir()
    cli.data_dir.chmod(0o500)
    refused(cli, 1, "add", "x")
    assert cli("doctor").code == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_can_not_be_written_is_a_failure(cli: Cli) -> None:
    cli.ok("add", "x")
    shell = shutil.which("sh")
    assert shell
    runner = Cli(Path(shell), cli.data_dir, cli.home, cli.models)
    result = runner("-c", f"'{cli.binary}' list > /dev/full")
    assert result.code == 1
    assert "standard output" in result.err
