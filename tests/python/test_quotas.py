"""What an operator lets a tenant have, set beside a gateway that runs."""

import json
import time

from served import make_key, serve

from cli import TIMEOUT_S, Cli


def test_quotas_hold_at_once(cli: Cli) -> None:
    admin = make_key(cli, "--access", "admin")
    key = make_key(cli, "--tenant", "acme")
    other = make_key(cli, "--tenant", "other")
    refused = cli("quota", "set", "--max-facts", "1")
    assert refused.code == 2
    assert "--tenant" in refused.err
    with serve(cli) as served:

        def add(text: str, key: str) -> tuple[int, bytes]:
            return served.request("POST", "/memories", {"messages": text, "user_id": "ana"}, key)

        assert add("Ana moved to Lisbon.", key)[0] == 200
        cli.ok("quota", "set", "--tenant", "acme", "--max-facts", "1")
        status, body = add("Ana has a cat.", key)
        assert status == 403
        assert json.loads(body)["error"]["code"] == "facts_quota"
        assert "quota of 1 facts" in json.loads(body)["detail"]
        assert add("Ana has a cat.", other)[0] == 200
        status, body = served.request("PUT", "/v1/quotas/acme", {"kv_bytes": 1}, admin)
        assert status == 200, body
        assert served.request("PUT", "/v1/quotas/acme", {}, key)[0] == 403
        for number in range(8):
            assert add(f"Ana has room {number} of the house.", key)[0] == 200
        assert [one["tenant"] for one in cli.json("quota", "list")["quotas"]] == ["acme"]

        def facts(key: str) -> list[bool]:
            question = [{"role": "user", "content": "What has Ana?"}]
            body = {"messages": question, "memory": {"user": "ana"}, "max_tokens": 2}
            status, data = served.request("POST", "/v1/chat/completions", body, key)
            assert status == 200, data
            return [fact["injected"] for fact in json.loads(data)["inferscale"]["facts"]]

        deadline = time.monotonic() + TIMEOUT_S
        while not all(facts(other)):  # the background encodes, also past who must wait
            assert time.monotonic() < deadline
            time.sleep(0.2)
        told = facts(key)
        assert len(told) == 9  # all of them, as text
        assert not all(told)
        metrics = served.request("GET", "/metrics", key=admin)[1].decode()
        assert 'inferscale_quota_limit{tenant="acme",what="kv_bytes"} 1\n' in metrics
        assert 'inferscale_quota_used{tenant="acme",what="facts"} 9\n' in metrics
        cli.ok("quota", "set", "--tenant", "acme")
        while not all(facts(key)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert cli.json("quota", "list")["quotas"] == []
