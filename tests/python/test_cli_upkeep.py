"""Taking facts elsewhere and away: export, import of exports, backup, forget."""

import json
import threading
import time
from pathlib import Path

import pytest
from served import serve

from cli import TIMEOUT_S, Cli


def fill(cli: Cli) -> None:
    cli.ok("add", "Ana moved to Lisbon in May.", "--speaker", "Ana", "--user", "ana")
    cli.ok("add", 'Ana: 猫 named "Miso"', "--user", "ana", "--run", "r", "--metadata", '{"k":[1]}')
    fact = cli.json("add", "Bo plays chess.", "--user", "bo", "--when", "2024-05-08")["results"][0]
    cli.ok("update", fact["id"], "--text", "Bo plays go.")


def facts(cli: Cli) -> list[dict[str, object]]:
    return list(cli.json("list", "--user", "*", "--limit", "1000")["facts"])


def test_an_export_makes_the_same_facts_elsewhere(cli: Cli, tmp_path: Path) -> None:
    fill(cli)
    file = tmp_path / "facts.jsonl"
    assert cli.json("export", str(file)) == {"facts": 3, "users": 2, "file": str(file)}
    assert file.stat().st_mode & 0o077 == 0
    assert cli.ok("export").out == file.read_text()
    assert cli.ok("export", "--user", "bo").out.count("\n") == 3
    before = facts(cli)
    history = cli.json("history", str(before[-1]["id"]))
    other = Cli(cli.binary, tmp_path / "other", cli.home, cli.models)
    for added in (3, 0):
        words = ("--no-encode",) if added else ("--no-encode", "--from-export")
        report = other.json("import", str(file), *words)
        assert (report["added"], report["duplicates"]) == (added, 3 - added)
        assert facts(other) == before
    assert other.json("history", str(before[-1]["id"])) == history
    found = other.json("search", "Where does Ana live?", "--user", "ana")["results"]
    assert found[0]["text"] == "Ana moved to Lisbon in May."


def test_a_damaged_export_imports_nothing_and_says_where(cli: Cli, tmp_path: Path) -> None:
    fill(cli)
    lines = cli.ok("export").out.splitlines(keepends=True)
    other = Cli(cli.binary, tmp_path / "other", cli.home, cli.models)
    changed = [line.replace("plays go", "plays no") for line in lines]
    result = other("import", "-", stdin="".join(changed))
    assert result.code == 1
    assert "line 4" in result.err
    assert "nothing was imported" in result.err
    assert other("import", "-", stdin="".join(lines[:-1])).code == 1
    assert other("import", "-", stdin="".join(lines[:2] + lines[3:])).code == 1
    assert other("import", "-", "--from-export", stdin='{"text":"chat"}').code == 2
    assert facts(other) == []


@pytest.mark.parametrize("while_serving", [False, True])
def test_a_backup_answers(cli: Cli, tmp_path: Path, while_serving: bool) -> None:
    for i in range(8):
        cli.ok("add", f"Ana paid {100 + i} euros for lamp number {i}.", "--user", "ana")
    cli.ok("encode")
    copy = tmp_path / "copy"
    known: list[str] = []
    if while_serving:
        with serve(cli) as served:
            stop = threading.Event()

            def write() -> None:
                while not stop.is_set():
                    body = {
                        "messages": [{"role": "user", "content": f"note {len(known)} of this day"}],
                        "user_id": "bo",
                    }
                    status, data = served.request("POST", "/memories", body)
                    assert status == 200
                    known.append(json.loads(data)["results"][0]["id"])

            writer = threading.Thread(target=write)
            writer.start()
            while len(known) < 5 and writer.is_alive():
                stop.wait(0.05)
            acknowledged = list(known)
            report = cli.json("backup", str(copy))
            stop.set()
            writer.join()
    else:
        acknowledged = []
        report = cli.json("backup", str(copy))
    assert report["facts"] >= 8 + len(acknowledged)
    assert report["kv_records"] > 1
    restored = Cli(cli.binary, copy, cli.home, cli.models)
    ids = {fact["id"] for fact in facts(restored)}
    assert ids.issuperset(acknowledged)
    answer = restored.json(
        "ask", "What did lamp 3 cost?", "--user", "ana", "--plain", "0", "--max-tokens", "4"
    )
    assert answer["tokens"]["injected"] > 0
    assert len(answer["facts"]) == 8
    refused = cli("backup", str(copy))
    assert refused.code == 1
    assert "there already" in refused.err


def leftovers(folder: Path, text: str) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_forget_proves_that_nothing_is_left(cli: Cli) -> None:
    canary = "the violet canary number 4711 sings in the harbour of Split"
    cli.ok("add", canary, "--user", "ana", "--metadata", json.dumps({"note": canary[::-1]}))
    cli.ok("add", "Bo has an old boat.", "--user", "bo")
    cli.ok("encode")
    assert leftovers(cli.data_dir, canary)
    refused = cli("forget", "--verify")
    assert refused.code == 2
    assert cli("forget", "--user", "*", "--verify").code == 2
    report = cli.json("forget", "--user", "ana", "--verify")
    assert report["facts"] == 1
    assert report["gone"] is True
    proof = report["proof"]
    assert (proof["texts"], proof["vectors"], proof["keys"]) == (2, 1, 1)
    assert proof["found_in"] == []
    files = [path for path in cli.data_dir.rglob("*") if path.is_file()]
    assert proof["files"] >= 3
    assert proof["bytes"] <= sum(path.stat().st_size for path in files) + (1 << 20)
    assert leftovers(cli.data_dir, canary) == []
    assert leftovers(cli.data_dir, canary[::-1]) == []
    assert [fact["text"] for fact in facts(cli)] == ["Bo has an old boat."]


def test_forget_fails_if_something_is_left(cli: Cli) -> None:
    canary = "the violet canary number 4711 sings in the harbour of Split"
    cli.ok("add", canary, "--user", "ana")
    (cli.data_dir / "notes.txt").write_text(f"a copy: {canary}")
    result = cli("forget", "--user", "ana", "--verify")
    assert result.code == 1
    assert "FOUND IN  notes.txt" in result.out
    assert canary not in result.out


def test_forget_beside_a_gateway_that_has_encoded(cli: Cli) -> None:
    canary = "the violet canary number 4711 sings in the harbour of Split"
    with serve(cli) as served:
        for user, text in (("ana", canary), ("bo", "Bo has an old boat called Kormoran.")):
            body = {"messages": text, "user_id": user}
            assert served.request("POST", "/memories", body)[0] == 200

        def injected(user: str) -> int:
            question = [{"role": "user", "content": "What is known?"}]
            answer = served.chat(messages=question, memory={"user": user}, max_tokens=2)
            return sum(fact["injected"] for fact in answer["inferscale"]["facts"])

        deadline = time.monotonic() + TIMEOUT_S
        while injected("ana") + injected("bo") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        report = cli.json("forget", "--user", "ana", "--verify")
        assert report["gone"] is True
        assert report["segments_busy"] == 0
        assert report["proof"]["found_in"] == []
        assert report["proof"]["keys"] > 0
        assert leftovers(cli.data_dir, canary) == []
        assert injected("bo") == 1
        assert injected("ana") == 0
