"""Peers of the bench are built from pinned commits, once, and found where they are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench import peers
from bench.peers import PEERS, Peer, peer
from bench.process import UnavailableError
from needed import missing


@pytest.fixture
def source(tmp_path: Path) -> tuple[str, str]:
    """A repository of two commits, and the first of them."""
    if shutil.which("git") is None:
        missing("git is not installed")
    folder = tmp_path / "source"
    folder.mkdir()

    def git(*words: str) -> str:
        own = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet")
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    for text in ("first", "second"):
        (folder / "text").write_text(text)
        git("add", "text")
        git("commit", "--quiet", "--message", text)
    return folder.as_uri(), git("rev-parse", "HEAD~1")


def recipes(source: tuple[str, str], command: str) -> dict[str, Peer]:
    return {
        "library": Peer(*source, ("cp text library.so",), "library.so", ()),
        "program": Peer(*source, (command,), "program", (), {"IOTAX_BENCH_PROGRAM": "program"}, needs=("library",)),
    }


def test_a_peer_is_built_at_its_commit_after_what_it_needs_and_only_once(
    source: tuple[str, str], built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "PEERS", recipes(source, 'cat text "$PEERS/library/library.so" > program'))
    with pytest.raises(
        UnavailableError, match="the program is not built: `make bench-peers`, or set IOTAX_BENCH_PROGRAM"
    ):
        peer("IOTAX_BENCH_PROGRAM", "the program")
    assert peers.main(["program"]) == 0
    assert peer("IOTAX_BENCH_PROGRAM", "the program").read_text() == "firstfirst"
    (built / "program" / "text").write_text("changed")
    capsys.readouterr()
    assert peers.main([]) == 0
    assert capsys.readouterr().out.count("built already") == 2
    assert (built / "program" / "program").read_text() == "firstfirst"


def test_a_build_that_fails_names_the_command_and_its_output(
    source: tuple[str, str], built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "PEERS", recipes(source, "echo no compiler; false"))
    assert peers.main([]) == 1
    log = built / "program.log"
    assert capsys.readouterr().err == f"program: `echo no compiler; false` failed; its output is in {log}\n"
    assert "no compiler" in log.read_text()


def test_a_variable_names_another_build(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = built / "unfs3" / "unfsd"
    here.parent.mkdir(parents=True)
    here.touch()
    assert peer("IOTAX_BENCH_UNFS3", "unfs3") == here
    other = tmp_path / "unfsd"
    monkeypatch.setenv("IOTAX_BENCH_UNFS3", str(other))
    with pytest.raises(UnavailableError, match=f"IOTAX_BENCH_UNFS3 names {other}, which does not exist"):
        peer("IOTAX_BENCH_UNFS3", "unfs3")
    other.touch()
    assert peer("IOTAX_BENCH_UNFS3", "unfs3") == other
    monkeypatch.delenv("IOTAX_BENCH_CHIMERA", raising=False)
    with pytest.raises(UnavailableError, match="IOTAX_BENCH_CHIMERA is not set: the path of chimera"):
        peer("IOTAX_BENCH_CHIMERA", "chimera")


def test_every_peer_is_pinned_and_comes_after_what_it_needs() -> None:
    names = list(PEERS)
    for name, recipe in PEERS.items():
        assert re.fullmatch("[0-9a-f]{40}", recipe.commit), name
        assert all(names.index(need) < names.index(name) for need in recipe.needs), name


def test_a_peer_without_a_recipe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["nfsd"])
    assert "there is no recipe for nfsd" in capsys.readouterr().err
