"""The quality gate: verify, and what heeds it. Few facts, so that it takes seconds."""

import json
import sqlite3
from typing import Any

from served import serve

from cli import Cli

FEW = ("--facts", "3", "--plain", "0")
QUESTION = ("ask", "Where does Ana live?", "--max-tokens", "4", *FEW)


def overrule(cli: Cli, passed: bool) -> None:
    """Turns what was measured into the other verdict."""
    with sqlite3.connect(cli.data_dir / "memory.db") as db:
        assert db.execute("UPDATE verdicts SET passed = ?", (passed,)).rowcount == 1
    db.close()


def quality(cli: Cli) -> dict[str, Any]:
    checks = cli.json("doctor", *FEW)["checks"]
    found = [check for check in checks if check["name"] == "quality"]
    assert len(found) == 1
    return dict(found[0])


def test_what_was_measured_is_heeded_and_shown(cli: Cli) -> None:
    cli.ok("add", "Ana moved to Lisbon in May.", "Bo has an old boat.", "Ana likes figs.")
    cli.ok("encode")
    before = cli.ok(*QUESTION, "-o", "json")
    assert before.json["mode"] == "kv"
    assert quality(cli)["state"] == "warning"

    measured = cli("verify", *FEW, "-o", "json")
    verdict = measured.json
    assert measured.code == (0 if verdict["passed"] else 1)
    assert verdict["passed"] == (
        verdict["kl"] <= verdict["kl_limit"] and verdict["agreement"] >= verdict["agreement_limit"]
    )
    assert 0 < verdict["kl"] < 2
    assert 0 < verdict["noise_kl"] < 2
    assert 0.3 < verdict["agreement"] <= 1
    assert verdict["questions"] == 12
    assert verdict["positions"] > 24
    assert cli.json("stats")["facts"] == 3  # what it measured with is gone

    overrule(cli, passed=False)
    answer = cli.ok(*QUESTION, "-o", "json")
    assert answer.json["mode"] == "text"
    assert answer.json["tokens"]["injected"] == 0
    assert answer.err == ""
    assert cli.json(*QUESTION, "--mode", "kv")["mode"] == "kv"
    assert quality(cli)["state"] == "warning"
    assert "failed" in quality(cli)["detail"]
    with serve(cli, "--facts", "3") as served:
        assert served.hello["quality"]["passed"] is False
        assert json.loads(served.request("GET", "/health")[1])["quality"]["passed"] is False
        chat = served.chat(
            messages=[{"role": "user", "content": "Where does Ana live?"}],
            memory={"user": "default"},
            max_tokens=4,
        )
        assert chat["inferscale"]["mode"] == "text"
        overrule(cli, passed=True)  # seen at once
        assert json.loads(served.request("GET", "/health")[1])["quality"]["passed"] is True
        chat = served.chat(
            messages=[{"role": "user", "content": "Where does Ana live?"}],
            memory={"user": "default", "mode": "auto"},
            max_tokens=4,
        )
        assert chat["inferscale"]["mode"] == "kv"
    assert quality(cli)["state"] == "ok"
    # Of these settings only.
    overrule(cli, passed=False)
    assert cli.json(*QUESTION, "--window", "isolated")["mode"] == "kv"


def test_verify_needs_models(cli: Cli) -> None:
    cli.models.pop("INFERSCALE_MODEL")
    result = cli("verify")
    assert result.code == 1
    assert "--model" in result.err
