"""docs/reference/study.md, written from the model: `python -m iotax.study.reference > docs/reference/study.md`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iotax.protocols import names, schemes
from iotax.study.endpoint import GUEST_DISK_FORM
from iotax.study.model import LABS, SECTIONS, factor_names
from iotax.study.schema import study_schema

_HEAD = """\
# Study files

Written from the model by `python -m iotax.study.reference`; a test compares. `iotax init` writes a commented file.

A study is a YAML mapping. Sizes are `4KiB`, `4k` or `4096`; k, m, g, t are binary, with B or iB or without, as in fio:
`128MB` is 128 MiB, and iotax says so where a file has it. Rates of I/O are `70000`, `70k` or `1.5M`, decimal. Durations
are `500ms`, `2s`, `5min` or seconds. Percentages are `75%` or `75`; a fraction of 1 without its sign, such as `0.75`,
is refused, since it may mean 75% or 0.75%. An unknown name or value is an error with its line and the nearest
valid one.

`factors` names the fields that vary, each with a list of levels; the end of this page lists them. Levels of `protocol`
are the lab's own protocols (loopback: {embedded}), or labels with endpoints:

| endpoint | form |
|---|---|
{endpoints}
| a file or block device | its path, from the study file's folder when relative |
{host_endpoints}

A label may also be a mapping with the endpoint as `protocol:` and its own credentials: `initiator`, `chap`,
`dhchap`, `uid`, `gid`. They take the place of those under `connection`, which hold for every other label whose protocol
knows them. So two arrays with two secrets can be in one study:

```yaml
factors:
  protocol:
    array-a: {protocol: "iscsi://10.0.0.5/iqn.2001-05.org.example:vol1/0", chap: {user: ann, secret_file: /etc/ann}}
    array-b: {protocol: "iscsi://10.0.0.6/iqn.2001-05.org.example:vol1/0", chap: {user: bob, secret_env: BOB}}
    array-c: {protocol: "nvme-tcp://10.0.0.5/nqn.2014-08.org.example:vol1?ns=1", dhchap: {secret_file: /etc/host}}
    filer: {protocol: "nfs://10.0.0.7/export/file", uid: 1000, gid: 100}
```

No study, notebook, log or report holds a secret itself, only the name of its file or environment variable.

iotax never overwrites data it did not write, unless you pass `--destroy ENDPOINT`: it writes to an endpoint only when
that holds zeros or iotax's own pattern.
"""


def reference() -> str:
    """The page."""
    schema = study_schema()
    defs = schema["$defs"]
    top = {
        name: each
        for name, each in schema["properties"].items()
        if name not in {*SECTIONS, "factors", "lab", "design", "search", "precondition"}
    }
    parts = [_head(), _table("The study", "", top)]
    for name, section in LABS.items():
        described = defs[section.__name__]
        parts.append(_table(f"lab: {{{name}: …}}", described["description"], described["properties"]))
    for name, section in SECTIONS.items():
        parts.append(_table(name, section.__doc__ or "", defs[section.__name__]["properties"]))
    parts.append(_table("design", defs["Design"]["description"], defs["Design"]["properties"]))
    for title, name in (
        ("lab: {hosts: {initiators: [{…}]}}", "Host"),
        ("lab: {hosts: {hypervisors: [{…}]}}", "Hypervisor"),
        ("lab: {hosts: {cluster: {…}}}, {relays: {…}}", "Cluster"),
        ("lab: {hosts: {cluster: {tls: {…}}}}", "Tls"),
        ("lab: {hosts: {cluster: {slurm: {…}}}}", "Slurm"),
        ("connection: {chap: {…}}", "Chap"),
        ("connection: {chap: {mutual: {…}}}", "Secret"),
        ("connection: {dhchap: {…}}", "DhChap"),
        ("connection: {dhchap: {controller: {…}}}", "DhSecret"),
        ("load: {command: {…}}", "Command"),
        ("load: {streams: {NAME: …}}", "Stream"),
        ("design: {stop: …}", "Stop"),
        ("precondition", "Precondition"),
        ("search", "Search"),
        ("links: {PROTOCOL: {…}}", "Link"),
        ("events: [{…}]", "StudyEvent"),
        ("published: [{…}]", "Published"),
        ("published: [{figures: [{…}]}]", "PublishedFigure"),
    ):
        parts.append(_table(title, defs[name]["description"], defs[name]["properties"]))
    parts.append(f"## Factors\n\n{_factors()}\n")
    return "\n".join(parts)


def _head() -> str:
    told = [scheme for scheme, _ in schemes().values()]
    on_hosts = [(f"lab hosts: {each.kernel_title}", each.kernel_form) for each in told if each.kernel_form]
    on_hosts.append(("lab hosts: a guest's virtual disk by its serial number", GUEST_DISK_FORM))
    return (
        _HEAD.replace("{embedded}", ", ".join(f"`{name}`" for name in names("loopback")))
        .replace("{endpoints}", _forms([(each.title, each.form) for each in told if each.form]))
        .replace("{host_endpoints}", _forms(on_hosts))
    )


def _forms(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"| {title} | `{form.replace('|', chr(92) + '|')}` |" for title, form in rows)


def _table(title: str, text: str, fields: dict[str, Any]) -> str:
    rows = [
        f"| `{name}` | {_default(field)} | {field.get('description', '').replace(chr(10), ' ')} |"
        for name, field in fields.items()
    ]
    lines = [
        f"## {title}",
        "",
        *([text, ""] if text else []),
        "| field | default | meaning |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return "required"
    value = field["default"]
    if value is None or value == "":
        return ""
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _factors() -> str:
    names = factor_names()
    fixed = [name for model in SECTIONS.values() for name in model.model_fields if name not in names]
    simulated = [name for name, section in names.items() if section == "sim"]
    return (
        f"Every field of {_named(SECTIONS)} may be a factor, except {_named(fixed)}; in the sim lab also "
        f"{_named(simulated)}."
    )


def _named(names: Iterable[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}"


if __name__ == "__main__":
    print(reference(), end="")
