"""The gateway over a Unix domain socket and over TLS, as clients meet it."""

import json
import signal
import ssl
import stat
import subprocess
import time
from pathlib import Path

import pytest
from served import serve

from cli import TIMEOUT_S, Cli


def make_certificate(folder: Path, name: str) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "1", "-subj", f"/CN={name}", "-addext"]
    words += ["subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        words,
        check=True,
        capture_output=True,
    )
    return str(certificate), str(key)


def test_a_socket_of_this_user_only(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with serve(cli, "--unix", str(path)) as served:
        assert served.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # Any host may be named: no page in a browser can reach this.
        assert served.request("GET", "/v1/ping")[0] == 200
        curl = ["curl", "-s", "--unix-socket", str(path), "http://gateway/v1/models"]
        models = subprocess.run(curl, check=True, capture_output=True, timeout=TIMEOUT_S).stdout
        assert json.loads(models)["data"][0]["id"] == served.model
        second = cli("serve", "--unix", str(path))
        assert second.code == 1
        assert "another process listens" in second.err
        served.process.kill()  # which leaves the file
        served.process.wait(TIMEOUT_S)
        assert path.exists()
        served.process.returncode = 0  # as it should
    with serve(cli, "--unix", str(path)) as served:
        assert served.request("GET", "/health")[0] == 200
    assert not path.exists()


def test_tls_and_its_certificates_read_again(cli: Cli, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "first")
    with serve(cli, "--tls-cert", certificate, "--tls-key", key) as served:
        assert served.url.startswith("https://127.0.0.1:")
        with pytest.raises(ssl.SSLCertVerificationError):
            served.request("GET", "/health/live")
        served.trusted = certificate
        answer = served.chat(messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
        assert answer["choices"]
        kept = served.connect()
        kept.request("GET", "/health/live")
        assert kept.getresponse().read()
        make_certificate(tmp_path, "second")
        served.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                assert served.request("GET", "/health/live")[0] == 200
                break
            except ssl.SSLCertVerificationError:  # it still shows the first one
                assert time.monotonic() < deadline
                time.sleep(0.05)
        kept.request("GET", "/health/live")  # on a connection that began before
        assert kept.getresponse().status == 200
        Path(key).write_text("nonsense")
        served.process.send_signal(signal.SIGHUP)
        assert served.request("GET", "/health/live")[0] == 200


def test_files_that_tls_cannot_use(cli: Cli, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "first")
    refused = cli("serve", "--tls-cert", certificate, "--tls-key", certificate)
    assert refused.code == 2
    assert f"TLS key {certificate}" in refused.err
    refused = cli("serve", "--tls-cert", str(tmp_path / "none"), "--tls-key", key)
    assert refused.code == 2
    assert "No such file" in refused.err
    assert cli("serve", "--tls-cert", certificate).code == 2
    assert cli("serve", "--unix", str(tmp_path / "s"), "--port", "1").code == 2
