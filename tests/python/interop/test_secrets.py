"""Secrets do not leak: a study that uses secrets leaves none in its notebook, log, report or exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import ran
from iotax.notebook import Notebook
from measurements import results_of

from .conftest import ENGINE
from .test_dhchap import secret

Serve = Callable[[dict[str, Any]], dict[str, Any]]

CHAP, DHCHAP_KEY, WRONG = "open sesame, please", b"only the host knows this, really", "open the door, please"
STUDY = """\
name: %s
question: Who knows?
volume: {size: 8MiB}
factors:
  protocol: %s
connection: {%s}
load: {read: 50%%, outstanding: 2, warmup: 20ms, runtime: 500ms}
design: {replicates: 1}
baseline: {protocol: %s}
"""
CHAP_LOGIN, DHCHAP_LOGIN = "chap: {user: load, secret_env: IOTAX_TEST_SECRET}", "dhchap: {secret_file: host}"


@pytest.fixture
def _studies(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One study of two exports with the right secrets, and one of an export with a wrong secret."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IOTAX_ENGINE", str(ENGINE))
    monkeypatch.setenv("IOTAX_TEST_SECRET", CHAP)
    Path("host").write_text(secret(DHCHAP_KEY, 1))
    Path("chap").write_text(CHAP)
    Path("wrong").write_text(WRONG)
    chap = {name: {"user": "load", "secret_file": str(tmp_path / name)} for name in ("chap", "wrong")}
    groups = {"scsi": {"chap": chap["chap"]}, "nvme": {"dhchap": {"secret_file": str(tmp_path / "host")}}}
    groups["closed"] = {"chap": chap["wrong"]}
    ready = serve(
        {
            "volumes": [{"name": name, "media": "memory", "size_bytes": 8 << 20} for name in groups],
            "groups": [{"name": name, "initiators": ["127.0.0.0/8"], **asks} for name, asks in groups.items()],
            "exports": [
                {
                    "protocol": "nvme-tcp" if name == "nvme" else "iscsi",
                    "listen": "127.0.0.1:0",
                    "volume": name,
                    "groups": [name],
                }
                for name in groups
            ],
        }
    )
    endpoints = {name: portal["endpoint"] for name, portal in zip(groups, ready["portals"], strict=True)}
    for name, levels in (("guarded", ("scsi", "nvme")), ("refused", ("closed", "nvme"))):
        protocols = json.dumps({level: endpoints[level] for level in levels})
        Path(f"{name}.yaml").write_text(STUDY % (name, protocols, f"{CHAP_LOGIN}, {DHCHAP_LOGIN}", levels[0]))
    own = {"protocol": endpoints["closed"], "chap": {"user": "load", "secret_file": "wrong"}}
    both = json.dumps({"scsi": endpoints["scsi"], "closed": own})
    Path("both.yaml").write_text(STUDY % ("both", both, CHAP_LOGIN, "scsi"))


@pytest.mark.usefixtures("_studies")
@pytest.mark.slow
def test_a_study_that_logs_in_leaves_no_secret_anywhere() -> None:
    words = ("run guarded.yaml", "show", "export -f json", "run refused.yaml", "plan both.yaml", "run both.yaml")
    done = {each: ran(*each.split()) for each in words}
    with Notebook(Path("out") / "guarded.iotax") as notebook:
        assert results_of(notebook, 2)
    with Notebook(Path("out") / "both.iotax") as notebook:
        assert results_of(notebook, 2)
    assert "authentication failed" in done["run refused.yaml"].output
    assert "the target asks for CHAP" in done["run refused.yaml"].output
    assert json.loads(done["export -f json"].stdout), "what is exported is looked at"
    texts = {each: (result.stdout + result.stderr).encode() for each, result in done.items()}
    texts |= {str(path): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert {"out/guarded.iotax", "out/guarded.html"} <= texts.keys()
    written = secret(DHCHAP_KEY, 1).split(":")[2]
    for known in (CHAP, WRONG, DHCHAP_KEY.decode(), written):
        for form in (known.encode(), known.encode().hex().encode()):
            assert [name for name, text in texts.items() if form in text] == [], known
