"""Known secrets and strings that look like secrets are hidden; ordinary words are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iotax import redaction
from iotax.live import Board
from iotax.notebook import Notebook, Writer
from iotax.redaction import HIDDEN, learn_from, redact, redact_data
from report.factory import Simulation, study


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())


@pytest.mark.parametrize(
    "text",
    [
        "CHAP authentication failed",
        "iscsi: CHAP: authentication failed for ann",
        "the target asks for CHAP: correct or give `chap: {user: …, secret_file: …}` under connection",
        "dhchap: it is not of the form `DHHC-1:…:` (nvme gen-dhchap-key writes one)",
        "secret_file: /run/ann: Permission denied",
        "token expected before line 3",
        "password authentication is off",
        "the credentials of host b were refused",
        "chap.mutual: both directions have the same secret",
    ],
)
def test_words_stay_readable(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "login to iscsi://fred:hunter2@host/iqn.x/0 was refused",
            f"login to iscsi://{HIDDEN}@host/iqn.x/0 was refused",
        ),
        ("iscsi://fred%hunter2@host/iqn.x/0", f"iscsi://{HIDDEN}@host/iqn.x/0"),
        ("chap_secret=hunter2 used", f"chap_secret={HIDDEN} used"),
        ("node.session.auth.password = hunter2", f"node.session.auth.password = {HIDDEN}"),
        ("h1:   password: hunter2", f"h1:   password: {HIDDEN}"),
        ('{"api_token": "hunter2", "at": 3}', f'{{"api_token": {HIDDEN}, "at": 3}}'),
        ("run --array-password hunter2 x", f"run --array-password {HIDDEN} x"),
        (f"key DHHC-1:00:{'k' * 48}: refused", f"key {HIDDEN} refused"),
    ],
)
def test_secrets_are_known_by_their_form(text: str, left: str) -> None:
    assert redact(text) == left


def test_secrets_that_a_study_names_are_hidden_wherever_they_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOB", "correct horse")
    monkeypatch.setenv("ARRAY", "battery staple")
    (tmp_path / "ann").write_text("opensesame\n")
    os.mkfifo(tmp_path / "pipe")
    learn_from(
        {
            "connection": {"chap": {"user": "ann", "secret_file": str(tmp_path / "ann")}},
            "setups": [{"chap": {"secret_env": "BOB"}}, {"dhchap": {"secret_file": tmp_path / "pipe"}}],
            "lab": {"hosts": {"hooks": [{"run": "map", "env": ["ARRAY", "NONE"]}]}},
        }
    )
    said = "ann said opensesame, bob said correct horse, the array said battery staple"
    assert redact(said) == f"ann said {HIDDEN}, bob said {HIDDEN}, the array said {HIDDEN}"
    assert redact("the user ann was refused: CHAP authentication failed").endswith("CHAP authentication failed")


def test_a_notebook_keeps_no_known_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOB", "correct horse")
    learn_from({"secret_env": "BOB"})
    data = Simulation().data(study(design={"replicates": 1}))
    path = tmp_path / "n.iotax"
    with Writer(path) as writer:
        run = writer.begin(data.study, "", "", list(data.planned))
        session = writer.begin_session(run, {}, 0)
        attempt = writer.begin_attempt(session, run, data.planned[0])
        writer.end_attempt(attempt, "failed", reason="not correct horse", log="it sent correct horse")
        writer.add_closing(session, run, "unmapped with correct horse")
    with Notebook(path) as notebook:
        [kept] = notebook.attempts()
        assert (kept.reason, kept.log) == (f"not {HIDDEN}", f"it sent {HIDDEN}")
        assert notebook.closings() == [f"unmapped with {HIDDEN}"]
    assert b"correct horse" not in path.read_bytes()
    board = Board(data.study)
    board.warn("the array wants correct horse")
    assert "correct horse" not in str(vars(board))


def test_data_are_hidden_by_the_names_of_their_keys() -> None:
    assert redact_data({"chap": {"user": "ann"}, "notes": ["CHAP authentication failed"]}) == {
        "chap": HIDDEN,
        "notes": ["CHAP authentication failed"],
    }
