"""What was put into answers, as an operator looks it up later."""

import json

from served import make_key, serve

from cli import Cli


def test_the_log_outlives_the_gateway_and_not_the_user(cli: Cli) -> None:
    admin = make_key(cli, "--access", "admin")
    key = make_key(cli)
    body = {"messages": "Ana moved to Lisbon.", "user_id": "ana"}
    question = {"messages": [{"role": "user", "content": "Where?"}], "max_tokens": 2}
    with serve(cli, "--audit", "10") as served:
        added = json.loads(served.request("POST", "/memories", body, key)[1])["results"][0]
        asked = {**question, "memory": {"user": "ana"}}
        status, data = served.request("POST", "/v1/chat/completions", asked, key)
        assert status == 200, data
        assert served.request("GET", "/v1/audit", key=key)[0] == 403
    with serve(cli) as served:  # which adds nothing to it
        assert served.request("POST", "/v1/chat/completions", asked, key)[0] == 200
        status, log = served.request("GET", "/v1/audit", key=admin)
        assert status == 200
        (kept,) = json.loads(log)["answers"]
        assert kept["id"] == json.loads(data)["id"]
        assert (kept["user"], kept["injected"] + kept["computed"]) == ("ana", [added["id"]])
        assert b"Lisbon" not in log
        cli.ok("forget", "--user", "ana", "--verify")
        assert json.loads(served.request("GET", "/v1/audit", key=admin)[1])["answers"] == []
