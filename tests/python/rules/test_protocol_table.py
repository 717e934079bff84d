"""A new protocol is a row in the table of protocols: all code that names protocols uses that table."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from iotax import protocols
from iotax.report.palette import COLOURS
from iotax.study.endpoint import one_portal, parse_endpoint, portals_of

TOY = """
from iotax.protocols import table
from iotax.protocols.base import Protocol, Scheme

SCHEME = Scheme(
    name="toy", port=7777, title="Toy", form="toy://HOST[:PORT]/BOX",
    wrong=lambda host, names, query: "" if len(names) == 1 else "the box is missing",
    hints={"refused": "is the toy at {host}:{port} wound up, or at {usual_port}?"},
)
table.PROTOCOLS = (
    *table.PROTOCOLS,
    Protocol(
        name="toy", title="Toy", colour="brown", labs=("loopback",), scheme=SCHEME, options=frozenset({"data_digest"}),
        kernel_module="toy_car", client=lambda host, port, path, query, read_only: [f"play {host} {port} {path}"],
    ),
)
"""

USED = """
import pytest
from iotax.cli import complete
from iotax.engine import EngineError
from iotax.labs.guard import hint
from iotax.labs.load import options
from iotax.protocols import kernel_modules
from iotax.report.palette import looks
from iotax.serving.offer import commands
from iotax.serving.offer import Offer
from iotax.study import Study
from iotax.study.endpoint import parse_endpoint
from iotax.study.facts import planned_facts
from iotax.study.reference import reference
from iotax.study.schema import study_schema
from iotax.wording import title

assert parse_endpoint("toy://h/box").protocol == "toy"
with pytest.raises(ValueError, match="the box is missing; write toy://HOST"):
    parse_endpoint("toy://h")
assert title("toy") == "Toy"
assert looks(["toy"], {})["toy"].colour.name == "brown"
assert list(complete.endpoints("to")) == ["toy"]
assert hint("toy://h:1/box", EngineError("refused", "gone")) == "is the toy at h:1 wound up, or at 7777?"
assert kernel_modules()["toy"] == "toy_car"
assert commands("toy", "toy://127.0.0.1:7777/box") == ["play 127.0.0.1 7777 box"]
assert {"toy": "127.0.0.1:7777"} in [{each["protocol"]: each["listen"]} for each in Offer().document()["exports"]]
assert "| Toy | `toy://HOST[:PORT]/BOX` |" in reference()
study = Study.model_validate({
    "name": "toy", "question": "Is it?", "factors": {"protocol": ["iscsi", "toy"]}, "baseline": {"protocol": "iscsi"},
    "connection": {"data_digest": True, "header_digest": True},
})
settings = study.settings({"protocol": "toy"})
assert options(settings) == {"data_digest": True}
assert planned_facts(study, settings).carrier.name == "TCP"
assert '"toy"' in __import__("json").dumps(study_schema())
"""


def test_a_protocol_added_to_the_table_is_known_everywhere() -> None:
    ran = subprocess.run([sys.executable, "-c", TOY + USED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_every_row_has_its_own_name_title_and_colour() -> None:
    assert len(set(protocols.names())) == len(protocols.names())
    assert set(protocols.colours().values()) <= set(COLOURS)
    for each in (protocols.titles(), protocols.colours()):
        assert len(set(each.values())) == len(each)


def test_every_form_of_an_endpoint_is_one_that_is_read() -> None:
    for name, (scheme, protocol) in protocols.schemes().items():
        if not scheme.form:
            continue
        form = scheme.form.partition("[?")[0].replace("[,HOST…]", "")
        written = form.replace("HOST[:PORT]", f"h:{scheme.port}").replace("=N", "=1")
        written = (
            written.replace("IQN", "iqn.2026-11.x:y")
            .replace("NQN", "nqn.x")
            .replace("LUN", "0")
            .replace("WWPN", 16 * "3")
        )
        assert written.startswith(f"{name}://")
        assert parse_endpoint(written).protocol == protocol.name


def test_several_portals_are_read_where_the_engine_has_paths() -> None:
    iscsi = "iscsi://10.0.0.1,[fe80::1]:3261/iqn.2026-11.x:y/0"
    assert parse_endpoint(iscsi).uri == iscsi
    assert (portals_of(iscsi), one_portal(iscsi)) == (
        ["10.0.0.1", "[fe80::1]:3261"],
        "iscsi://10.0.0.1/iqn.2026-11.x:y/0",
    )
    for name, (scheme, protocol) in protocols.schemes().items():
        assert ("[,HOST…]" in scheme.form) == (scheme.form != "" and protocol.has_paths), name


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("nfs://a,b/v0/data", "one portal stands before the path; write nfs://"),
        ("kernel:nvme-tcp://a,b/nqn.x?ns=1", "one portal stands before the path; name the others as `portals=`"),
        ("iscsi://a,/iqn.2026-11.x:y/0", "the host is missing"),
        ("iscsi://a,b:0/iqn.2026-11.x:y/0", "port 0 cannot be used"),
        ("iscsi://a,b,c,d,e,f,g,h,i/iqn.2026-11.x:y/0", "9 portals are more than 8"),
    ],
)
def test_portals_that_cannot_be_are_refused(endpoint: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_endpoint(endpoint)
