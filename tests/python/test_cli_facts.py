"""Facts: add, list, get, update, delete, history, search, import, stats, compact."""

import json
import uuid
from pathlib import Path

import pytest

from cli import Cli


def add(cli: Cli, *words: str) -> str:
    results = cli.json("add", *words)["results"]
    assert len(results) == 1
    return str(results[0]["id"])


def test_add_prints_id_and_event_and_folds_what_is_known(cli: Cli) -> None:
    first = cli.ok("add", "Ana moved to Lisbon in May.")
    fact_id, event = first.out.split()
    assert uuid.UUID(fact_id)
    assert event == "added"
    again = cli.json("add", "ana moved to lisbon in may")["results"]
    assert again == [{"id": fact_id, "event": "duplicate"}]


def test_add_needs_no_language_model(cli: Cli) -> None:
    cli.models.pop("INFERSCALE_MODEL")
    cli.ok("add", "Bo likes tea.")
    found = cli.json("search", "What does Bo drink?")["results"]
    assert [hit["text"] for hit in found] == ["Bo likes tea."]


def test_add_takes_texts_and_lines(cli: Cli) -> None:
    assert len(cli.json("add", "[one, two]", "search")["results"]) == 2
    lines = "a first line\r\n\n   \nand a second\n"
    assert len(cli.json("add", stdin=lines)["results"]) == 2
    texts = [fact["text"] for fact in cli.json("list")["facts"]]
    assert texts == ["[one, two]", "search", "a first line", "and a second"]


def test_a_fact_keeps_everything_it_was_given(cli: Cli) -> None:
    fact_id = add(
        cli, "Fährt Rad 🚲", "--speaker", "José", "--when", "2024-05-08T13:56:00+02:00",
        "--metadata", '{"topic":{"kind":"sport"}}', "--expires", "2999-01-01",
        "--user", "ana", "--agent", "helper", "--run", "chat-7",
    )  # fmt: skip
    fact = cli.json("get", fact_id)
    created = fact.pop("created")
    assert fact.pop("updated") == created
    assert fact == {
        "id": fact_id,
        "text": "Fährt Rad 🚲",
        "speaker": "José",
        "when": "2024-05-08T11:56:00Z",
        "user": "ana",
        "agent": "helper",
        "run": "chat-7",
        "metadata": {"topic": {"kind": "sport"}},
        "version": 1,
        "expires": "2999-01-01T00:00:00Z",
    }
    shown = cli.ok("get", fact_id).out
    assert "Fährt Rad 🚲" in shown
    assert "2024-05-08T11:56:00Z" in shown


def test_list_pages_filters_and_keeps_scopes_apart(cli: Cli) -> None:
    for number in range(5):
        add(cli, f"fact number {number}", "--user", "ana", "--speaker", "AB"[number % 2])
    add(cli, "of somebody else", "--user", "bo")
    add(cli, "of another tenant", "--tenant", "other")

    def texts(*words: str) -> list[str]:
        return [fact["text"][-1] for fact in cli.json("list", "--user", "ana", *words)["facts"]]

    assert texts() == ["0", "1", "2", "3", "4"]
    assert texts("--limit", "2", "--offset", "1") == ["1", "2"]
    assert texts("--newest", "--limit", "1") == ["4"]
    assert texts("--filter", '{"speaker":"B"}') == ["1", "3"]
    assert len(cli.json("list", "--user", "*")["facts"]) == 6
    assert cli.json("list")["facts"] == []
    assert cli("list", "--filter", "{").code == 2


def test_update_changes_what_is_given_and_history_tells(cli: Cli) -> None:
    fact_id = add(cli, "Ana lives in Lisbon.", "--expires", "2999-01-01")
    fact = cli.json("update", fact_id, "--text", "Ana lives in Porto.", "--expires", "never")
    assert (fact["text"], fact["version"], fact["expires"]) == ("Ana lives in Porto.", 2, None)
    cli.ok("update", fact_id, "--metadata", '{"a":1}')
    history = cli.json("history", fact_id)
    assert history["id"] == fact_id
    assert [entry["event"] for entry in history["history"]][:2] == ["ADD", "UPDATE"]
    assert history["history"][1]["old_text"] == "Ana lives in Lisbon."
    assert history["history"][1]["new_text"] == "Ana lives in Porto."
    hits = cli.json("search", "Where does Ana live?")["results"]
    assert [hit["text"] for hit in hits] == ["Ana lives in Porto."]
    assert cli("update", fact_id).code == 2


def test_delete_makes_search_forget(cli: Cli) -> None:
    gone = add(cli, "Ana's password is swordfish.")
    add(cli, "Ana likes the sea.")
    assert cli.json("search", "swordfish password")["results"][0]["id"] == gone
    assert cli.json("delete", gone) == {"deleted": 1}
    found = cli.json("search", "swordfish password")["results"]
    assert gone not in [hit["id"] for hit in found]
    assert cli("get", gone).code == 3
    assert "swordfish" not in cli.ok("history", gone).out
    cli.ok("compact")
    for file in cli.data_dir.rglob("*"):
        assert not file.is_file() or b"swordfish" not in file.read_bytes(), file


def test_delete_of_a_scope_wants_the_scope_and_yes(cli: Cli) -> None:
    for run in ("r1", "r2"):
        for number in range(3):
            add(cli, f"{run} says {number}", "--user", "ana", "--run", run)
    add(cli, "stays", "--user", "bo")
    assert cli("delete").code == 2
    assert cli("delete", "--yes").code == 2
    # From the environment is not typed.
    assert cli("delete", "--yes", env={"INFERSCALE_USER": "ana"}).code == 2
    assert cli("delete", "--user", "ana").code == 2
    assert len(cli.json("list", "--user", "ana")["facts"]) == 6
    assert cli.json("delete", "--user", "ana", "--run", "r1", "--yes") == {"deleted": 3}
    assert cli.json("delete", "--user", "ana", "--yes") == {"deleted": 3}
    assert len(cli.json("list", "--user", "bo")["facts"]) == 1


def test_unknown_ids_are_not_found(cli: Cli) -> None:
    known = add(cli, "here")
    unknown = str(uuid.uuid4())
    for words in (("get", unknown), ("history", unknown), ("update", unknown, "--text", "x"),
                  ("delete", unknown), ("get", "no-uuid"), ("get", "")):  # fmt: skip
        result = cli(*words)
        assert result.code == 3, words
        assert result.err.startswith("inferscale: ")
        assert result.err.count("\n") == 1
    result = cli("delete", known, unknown, "-o", "json")
    assert (result.code, result.json) == (3, {"deleted": 1})
    assert cli("get", known, "--tenant", "other").code == 3


def test_search_ranks_and_limits(cli: Cli) -> None:
    for text in ("Ana plays the violin.", "Bo repairs bicycles.", "It rained all of Tuesday."):
        add(cli, text)
    hits = cli.json("search", "Who fixes bikes?", "--limit", "2")["results"]
    assert len(hits) == 2
    assert hits[0]["text"] == "Bo repairs bicycles."
    assert hits[0]["score"] >= hits[1]["score"]
    assert {"cosine", "bm25", "id"} <= hits[0].keys()
    table = cli.ok("search", "Who fixes bikes?", "--limit", "1").out.splitlines()
    assert table[0].split() == ["SCORE", "ID", "DATE", "SPEAKER", "TEXT"]
    assert "Bo repairs bicycles." in table[1]


def chat_lines(count: int) -> list[str]:
    return [
        json.dumps({"speaker": "AB"[i % 2], "when": f"2024-03-{1 + i % 28:02}",
                    "text": f"Entry {i}: the visit to town number {i * 37 % 1000} was fine."})
        for i in range(count)
    ]  # fmt: skip


def test_import_encodes_and_folds_when_run_again(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(chat_lines(20)))
    report = cli.json("import", str(file))
    assert (report["facts"], report["added"], report["duplicates"]) == (20, 20, 0)
    assert report["encoded"]["facts"] == 20
    assert report["encoded"]["stored_tokens"] > 200
    again = cli.json("import", str(file))
    assert (again["added"], again["duplicates"], again["encoded"]["facts"]) == (0, 20, 0)
    stats = cli.json("stats")
    assert stats["facts"] == 20
    assert stats["episodes_encoded"] == stats["episodes"] > 0
    assert stats["kv"]["live_bytes"] > 0


@pytest.mark.parametrize(
    ("peer", "memories"),
    [
        ("mem0", {"results": [{"memory": "Iris keeps bees", "user_id": "iris", "hash": "1"}]}),
        ("zep", {"user_id": "iris", "edges": [{"fact": "Iris keeps bees", "hash": "1"}]}),
        ("letta", [{"text": "Iris keeps bees", "hash": "1"}]),
    ],
)
def test_import_takes_what_other_memories_export(
    cli: Cli, tmp_path: Path, peer: str, memories: object
) -> None:
    file = tmp_path / "memories.json"
    file.write_text(json.dumps(memories))
    words = ("import", str(file), "--from", peer, "--user", "iris", "--no-encode")
    said = cli.ok(*words).out
    assert "Added    1 facts" in said
    assert "Not kept 1 hash" in said
    assert cli.json(*words)["not_kept"] == {"hash": 1}
    facts = cli.json("list", "--user", "iris")["facts"]
    assert [fact["text"] for fact in facts] == ["Iris keeps bees"]


def test_import_says_which_facts_are_over(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "edges.json"
    over = {"fact": "Tom works in Liege", "invalid_at": "2025-03-01T00:00:00Z"}
    file.write_text(json.dumps([over, {"fact": "Tom works in Ghent"}]))
    report = cli.json("import", str(file), "--from", "zep", "--no-encode")
    assert report["added"] == 1
    assert report["not_kept"] == {"facts that have expired or stopped being true": 1}


def test_import_skips_a_broken_line_and_says_which(cli: Cli, tmp_path: Path) -> None:
    lines = chat_lines(10)
    lines[4] = '{"text": "cut off in the mid'
    lines[6] = '{"speaker": "A"}'
    file = tmp_path / "chat.jsonl"
    file.write_bytes("\n".join(lines).encode() + b'\n{"text": "bad \xff byte"}\n')
    result = cli.ok("import", str(file), "--no-encode", "-o", "json")
    assert result.json["added"] + result.json["skipped"] == 11
    assert result.json["added"] >= 8
    assert "line 5" in result.err
    assert "line 7" in result.err
    assert result.json["encoded"] is None


def test_import_reads_text_from_stdin(cli: Cli) -> None:
    text = "[8 May 2023] Ana: I moved to Lisbon.\nBo: And I did not.\n"
    report = cli.json("import", "-", "--format", "text", "--no-encode", stdin=text)
    assert report["added"] == 2
    facts = cli.json("list")["facts"]
    assert [fact["speaker"] for fact in facts] == ["Ana", "Bo"]
    assert facts[0]["when"] == "2023-05-08T00:00:00Z"


def test_import_goes_on_after_an_interrupt(cli: Cli, tmp_path: Path) -> None:
    count = 1500
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(chat_lines(count)))
    stopped = cli.interrupted("import", str(file), "--no-encode", after="Adding")
    assert stopped.code == 130, stopped.err
    assert "same command" in stopped.err
    stored = cli.json("stats")["facts"]
    assert 0 < stored < count
    assert stored % 64 == 0
    report = cli.json("import", str(file), "--no-encode")
    assert (report["added"], report["duplicates"]) == (count - stored, stored)
    assert cli.json("stats")["facts"] == count


def test_encode_goes_on_after_an_interrupt(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(chat_lines(80)))
    cli.ok("import", str(file), "--no-encode", "--episode", "2")  # 40 episodes, two batches
    stopped = cli.interrupted("encode", after="Encoding")
    assert stopped.code == 130, stopped.err
    stats = cli.json("stats")
    assert stats["episodes_encoded"] < stats["episodes"]
    done = cli.json("encode")
    assert done["episodes"] == stats["episodes"] - stats["episodes_encoded"]
    assert done["pending_episodes"] == 0
    assert cli.ok("encode").out == "Nothing to encode.\n"


@pytest.mark.parametrize("words", [("stats",), ("list",), ("compact",)])
def test_reading_needs_no_model(cli: Cli, words: tuple[str, ...]) -> None:
    cli.models.clear()
    cli.ok(*words)
    cli.json(*words)
