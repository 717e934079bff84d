"""A campaign in each published source's file formats, with the source's own figures, reproduces the source's result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from answer_samples import DISKSPD_TEXT, VDBENCH_FILES
from hypervisor_campaign import START_S, campaign, clock, esxtop
from import_samples import fio_file, fio_job, fio_side

_WOBBLE = (1.0, 1.003, 0.997)
"""Small scatter between replicates."""


@pytest.fixture
def answered(tmp_path: Path, iotax):
    """The JSON of an import of these files, with these published figures."""

    def read(form: str, files: Path, published: list[dict[str, Any]], *words: object) -> dict[str, Any]:
        (tmp_path / "published.yaml").write_text(yaml.safe_dump({"published": published}))
        beside = ("--published", tmp_path / "published.yaml", "-n", "c.iotax")
        iotax("import", form, files, *words, *beside)
        iotax("report", "c.iotax")
        assert "Published and measured" in Path("c.html").read_text()
        return json.loads(iotax("show", "c.iotax", "--json").stdout)

    return read


def all_agree(document: dict[str, Any], count: int) -> None:
    found = document["published"]
    said = [
        (figure["treatment"], figure["published_relative"], figure["relative"], figure["agreement"])
        for source in found["sources"]
        for figure in source["figures"]
    ]
    assert (found["agree"], found["judged"]) == (count, count), said


def relative(of: dict[str, object], value: object) -> dict[str, object]:
    return {"of": of, "relative": value}


# --- TR-3808: Iometer in every virtual machine, esxtop on the hosts

_BUSY = {"FC": 30.0, "iSCSI": 35.4, "NFS": 37.5}
"""Percent of a host's processors, including guests: iSCSI 118 and NFS 125 relative to FC."""
_IOPS = {128: 20_000, 384: 30_000, 640: 33_000}
_HOST_PROCESSORS = 8


def iometer(path: Path, outstanding: int, iops: float, ended_s: int) -> None:
    time, date = clock(ended_s)
    reads, writes = round(0.75 * iops * 60), round(0.25 * iops * 60)
    machines, mean_ms = outstanding // 4, 1000 * outstanding / iops
    row = {
        "Target Type": "ALL",
        "Target Name": "All",
        "Access Specification Name": "4K 75 read",
        "# Managers": machines,
        "# Workers": machines,
        "# Disks": machines,
        "IOps": iops,
        "Average Read Response Time": mean_ms,
        "Average Write Response Time": mean_ms,
        "Maximum Read Response Time": 90,
        "Maximum Write Response Time": 90,
        "Errors": 0,
        "Bytes Read": reads * 4096,
        "Bytes Written": writes * 4096,
        "Read I/Os": reads,
        "Write I/Os": writes,
        "Queue Depth": 4,
    }
    lines = [
        "'Version",
        "2006.07.27",
        "'Access specification name,default assignment",
        "4K 75 read,1",
        "'size,% of size,% reads,% random,delay,burst,align,reply",
        "4096,100,75,100,0,1,0,0",
        "'Results",
        f"'{','.join(row)}",
        ",".join(str(value) for value in row.values()),
        "'Time Stamp",
        f"{date} {time}:000",
    ]
    path.write_text("\n".join(lines) + "\n")


def test_tr_3808_by_iometer_and_esxtop(tmp_path: Path, answered) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    runs: list[tuple[int, float]] = []
    begin_s = START_S + 30
    for replicate, wobble in enumerate(_WOBBLE, start=1):
        for outstanding, iops in _IOPS.items():
            for protocol, percent in _BUSY.items():
                iometer(folder / f"{protocol}-{outstanding}-r{replicate}.csv", outstanding, iops * wobble, begin_s + 60)
                runs.append((begin_s, percent * wobble / 100 * _HOST_PROCESSORS))
                begin_s += 90

    def busy(at_s: int) -> float:
        return next((cores for began_s, cores in runs if began_s < at_s <= began_s + 60), 0.2)

    host = esxtop(tmp_path / "esxtop.csv", range(START_S, begin_s), busy)
    cpu = {
        "source": "TR-3808, host CPU",
        "response": {"cpu_utilisation": {"of": "machine"}},
        "baseline": {"protocol": "FC"},
    }
    published = [
        {
            "source": "TR-3808, throughput",
            "response": "iops",
            "figures": [relative({"protocol": name}, [91, 109]) for name in ("NFS", "iSCSI")],
        },
        cpu | {"figures": [relative({"protocol": name, "outstanding": load}, [110, 143])
                           for name in ("NFS", "iSCSI") for load in _IOPS]},
        cpu | {"source": "TR-3808, iSCSI against NFS", "baseline": {"protocol": "NFS"},
               "figures": [relative({"protocol": "iSCSI"}, [94, 95])]},
    ]  # fmt: skip
    document = answered(
        "iometer", folder, published, "--name-pattern", "{protocol}-{iodepth}-r{replicate}.csv", "--baseline",
        "protocol=FC", "--cpu", f"hypervisor={host}", "--response", "cpu_utilisation_machine", "--response", "iops",
        "--margin", "10%",
    )  # fmt: skip
    all_agree(document, 9)
    cells = {(each["arm"], each["levels"]["outstanding"]): each for each in document["treatments"]}
    for load in ("128", "384", "640"):
        ratio = cells["NFS", load]["relative"]["cpu_utilisation_machine"]
        assert (ratio["verdict"], round(ratio["ratio"], 2)) == ("worse", 1.25)
        assert cells["NFS", load]["relative"]["iops"]["verdict"] == "equivalent"
    # No guest was recorded, so the hypervisor's own part is unknown.
    assert "cpu_hypervisor" not in cells["NFS", "128"]["values"]


# --- NFS against iSCSI, 2018: five patterns in DiskSpd's text format, and fio for comparison

_PATTERNS = {
    "4k-random-read": 180.82,
    "4k-random-write": 191.80,
    "64k-sequential-read": 117.23,
    "64k-sequential-write": 171.30,
    "8k-mixed": 175.45,
}


def test_nfs_against_iscsi_by_what_diskspd_printed(tmp_path: Path, answered) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for at, (pattern, percent) in enumerate(_PATTERNS.items()):
        for protocol, times in (("NFS", 1.0), ("iSCSI", percent / 100)):
            for replicate, wobble in enumerate(_WOBBLE, start=1):
                ios = round(600_000 * (1 + 0.2 * at) * times * wobble)
                reads = ios * 3 // 4
                text = DISKSPD_TEXT.replace(" 600000 |", f" {ios} |").replace(" 450000 |", f" {reads} |")
                text = text.replace(" 150000 |", f" {ios - reads} |")
                text = text.replace("10:00:00 UTC", f"{10 + replicate}:{at:02}:{30 if times == 1 else 0:02} UTC")
                (folder / f"{protocol}_{pattern}_r{replicate}.txt").write_text(text)
    published = [
        {
            "source": "NFS against iSCSI, vendor's blog, 2018",
            "response": "iops",
            "figures": [relative({"protocol": "iSCSI", "pattern": each}, value) for each, value in _PATTERNS.items()],
        }
    ]
    document = answered(
        "diskspd", folder, published, "--name-pattern", "{protocol}_{pattern}_r{replicate}.txt", "--baseline",
        "protocol=NFS",
    )  # fmt: skip
    all_agree(document, 5)
    for cell in document["treatments"]:
        if cell["arm"] == "iSCSI":
            assert cell["relative"]["iops"]["verdict"] == "better"
            assert 100 * cell["relative"]["iops"]["ratio"] == pytest.approx(
                _PATTERNS[cell["levels"]["pattern"]], abs=0.1
            )


# --- the CPU of NFS and FC, 2014: fixed rates, esxtop and the guest's own time


def test_the_hypervisors_cpu_of_nfs_against_fc(tmp_path: Path, answered, iotax) -> None:
    made = campaign(tmp_path / "runs")
    published = [
        {
            "source": "Independent blog, 2014",
            "response": "cpu_hypervisor",
            "rate_iops": 70_000,
            "figures": [
                {"of": {"protocol": "nfs"}, "relative": [196, 198], "absolute": 81, "cores": 6},
                {"of": {"protocol": "fc"}, "absolute": 41, "cores": 3},
            ],
        }
    ]
    words = [word for role in ("hypervisor", "guest") for word in ("--cpu", f"{role}={made[role]}")]
    document = answered(
        "fio", made["runs"], published, "--name-pattern", "{protocol}-{rate_iops}-r{replicate}.json", "--baseline",
        "protocol=fc", *words,
    )  # fmt: skip
    all_agree(document, 2)
    sized = json.loads(iotax("size", "c.iotax", "--iops", "70k", "--cap", "100%", "--json").stdout)
    assert {each["arm"]: each["cores"] for each in sized["sizes"]} == {"fc": 3, "nfs": 6}


# --- IP against FC, 2023: vdbench over sizes and mixes, means over all

_PROTOCOLS = {"fc-scsi": 1.0, "fc-nvme": 1.03, "iscsi": 0.76, "iscsi-guest": 0.76 * 1.176, "nvme-tcp": 0.97}
_SIZES = {"4k": 300_000, "16k": 180_000, "32k": 120_000, "64k": 40_000}


def flatfile(path: Path, rate: float) -> None:
    path.mkdir(parents=True)
    text = VDBENCH_FILES.replace(" 30000 ", f" {rate:.2f} ").replace(" 20000 ", f" {rate * 0.8:.2f} ")
    (path / "flatfile.html").write_text(text.replace(" 5000 ", f" {rate * 0.2:.2f} "))


def test_ip_against_fc_by_vdbench(tmp_path: Path, answered) -> None:
    for protocol, times in _PROTOCOLS.items():
        for at, (size, rate) in enumerate(_SIZES.items()):
            for replicate, wobble in enumerate(_WOBBLE, start=1):
                # Small blocks lose more, large ones less; the mean over all is the source's.
                tilt = 1 + (1 - times) * (0.05 if at % 2 else -0.05)
                flatfile(tmp_path / "runs" / f"{protocol}_{size}_r{replicate}", rate * times * tilt * wobble)
    whole = {protocol: _mean(protocol) for protocol in _PROTOCOLS}
    source = {"source": "Integrator, 2023", "response": "iops", "statistic": "ratio of means"}
    published = [
        source | {"figures": [relative({"protocol": each}, round(100 * whole[each], 1))
                              for each in ("fc-nvme", "iscsi", "nvme-tcp")]},
        source | {"baseline": {"protocol": "iscsi"}, "figures": [
            relative({"protocol": "iscsi-guest"}, round(100 * whole["iscsi-guest"] / whole["iscsi"], 1))]},
    ]  # fmt: skip
    document = answered(
        "vdbench", tmp_path / "runs", published, "--name-pattern", "{protocol}_{bs}_r{replicate}/flatfile.html",
        "--baseline", "protocol=fc-scsi",
    )  # fmt: skip
    all_agree(document, 4)


def _mean(protocol: str) -> float:
    """Arithmetic mean over all loads, relative to FC-SCSI, as in the source."""
    times = _PROTOCOLS[protocol]
    tilts = [1 + (1 - times) * (0.05 if at % 2 else -0.05) for at in range(len(_SIZES))]
    return sum(rate * times * tilt for rate, tilt in zip(_SIZES.values(), tilts, strict=True)) / sum(_SIZES.values())


# --- FC-NVMe against SCSI FCP, 2020: fio from 4 to 256 KiB


def sizes() -> Iterator[tuple[str, int]]:
    return ((f"{kib}k", 400_000 // kib) for kib in (4, 8, 16, 32, 64, 128, 256))


def test_fc_nvme_against_fcp_by_fio(tmp_path: Path, answered) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for size, ios in sizes():
        for protocol, times in (("fcp", 1), ("fc-nvme", 2)):
            for replicate, wobble in enumerate(_WOBBLE, start=1):
                job = fio_job(
                    options={"bs": size, "iodepth": "30", "numjobs": "4"}, read=fio_side(round(ios * times * wobble))
                )
                stamp = 1_700_000_000_000 + 10_000 * replicate
                fio_file(folder / f"{protocol}_{size}_r{replicate}.json", job, timestamp_ms=stamp)
    published = [
        {
            "source": "Hypervisor vendor, 2020",
            "response": "iops",
            "figures": [relative({"protocol": "fc-nvme", "block_size": f"{size[:-1]}KiB"}, 200) for size, _ in sizes()],
        }
    ]
    document = answered(
        "fio", folder, published, "--name-pattern", "{protocol}_{bs}_r{replicate}.json", "--baseline", "protocol=fcp"
    )
    all_agree(document, 7)
    assert all(
        cell["relative"]["iops"]["verdict"] == "better" for cell in document["treatments"] if cell["arm"] == "fc-nvme"
    )


def test_a_published_figure_that_fits_no_result_is_told_with_its_line(tmp_path: Path, iotax) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for protocol in ("fcp", "fc-nvme"):
        fio_file(folder / f"{protocol}-r1.json", fio_job())
    text = "published:\n  - source: S\n    response: iops\n    figures: [{of: {protocol: nfs}, relative: 200}]\n"
    (tmp_path / "p.yaml").write_text(text)
    words = ("import", "fio", folder, "--name-pattern", "{protocol}-r{replicate}.json", "-n", "c.iotax", "--published")
    said = iotax(*words, tmp_path / "p.yaml", code=2).output.replace("\n", "")
    assert "p.yaml:4:" in said
    assert "nfs is not a level of protocol; its levels are" in said
    (tmp_path / "p.yaml").write_text("- {source: S, response: speed, figures: []}\n")
    assert "speed" in iotax(*words, tmp_path / "p.yaml", code=2).output
    assert "not a built-in study" in iotax(*words, "nothing", code=2).output
