"""The fixture `network`: the hosts that a test file requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .fake_host import FakeHost
from .namespaces import Network, need


@pytest.fixture(scope="module")
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network of the test file's `HOSTS` hosts. With `FAKES`, they have the kernel and commands of a FakeHost."""
    need()
    folder, count = tmp_path_factory.mktemp("hosts"), request.module.HOSTS
    fakes = {}
    if getattr(request.module, "FAKES", False):
        names = [f"h{number}" for number in range(1, count + 1)]
        fakes = {name: FakeHost(folder / f"fake-{name}", uid=0).environment for name in names}
    made = Network(folder, count, fakes)
    yield made
    made.close()
