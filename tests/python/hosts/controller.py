"""`iotax run` of a study whose hosts are namespaces of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .namespaces import Network


@dataclass(frozen=True)
class Controller:
    """`iotax run NAME.yaml` into NAME.iotax, in its folder."""

    network: Network
    text: str
    engine: Path
    folder: Path
    name: str

    def start(self, text: str, *options: str) -> subprocess.Popen[str]:
        (self.folder / f"{self.name}.yaml").write_text(text)
        environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        environment |= {"HOME": str(self.network.folder / "home"), "IOTAX_ENGINE": str(self.engine)}
        words = [sys.executable, "-m", "iotax", "run", f"{self.name}.yaml", "-n", f"{self.name}.iotax", "--no-report"]
        words += options
        return subprocess.Popen(
            words, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def left(self, process: str, names: Sequence[str]) -> list[object]:
        """What is left on these hosts of a load generator, whose processes are known by this text, and of iotax's files
        about it."""
        running = [pid for name in names for pid in self.network.processes(name, process)]
        return running + [each for name in names for each in self.network.home(name).glob(".cache/iotax/*ing-*")]

    def fails(self, text: str) -> str:
        with self.start(text) as running:
            said, _ = running.communicate(timeout=600)
        assert running.returncode != 0, said
        return said
