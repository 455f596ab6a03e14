"""What stands in deploy/ and can be checked without running it."""

import json
import re
from pathlib import Path

from served import serve

from cli import Cli


def test_the_dashboard_asks_for_metrics_that_there_are(cli: Cli, root: Path) -> None:
    dashboard = json.loads((root / "deploy/grafana/inferscale.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    routes = set(re.findall(r'route=~"([^"]*)"', asked))
    with serve(cli, "--auth", "on") as served:
        key = served.hello["admin_key"]
        assert served.request("POST", "/v1/chat/completions", {"messages": []}, key)[0] == 400
        status, text = served.request("GET", "/metrics", key=key)
        assert status == 200, text
        for route in {one for some in routes for one in some.split("|")}:
            assert served.request("PATCH", route, key=key)[0] == 405, route
    told = set(re.findall(r"^# TYPE (\w+)", text.decode(), re.MULTILINE))
    wanted = {name.removesuffix("_bucket") for name in re.findall(r"inferscale_\w+", asked)}
    assert not wanted - told
    assert len(wanted) > 12


def test_files_that_the_image_copies_are_there(root: Path) -> None:
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (root / "deploy/Dockerfile").read_text(), re.M
    )
    for name in " ".join(copied).split():
        assert (root / name).exists(), name
