"""A fio job file as a study: what iotax can ask of every protocol, and what it leaves out or changes, told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iotax.imports.fio_ini import Section, read_jobs
from iotax.imports.fio_options import DEFAULT_ENGINE, Job, per_direction, seconds_of, size_of
from iotax.imports.job_study import Converted, study_text
from iotax.imports.problems import small
from iotax.units import COMPRESS_MAX, DEDUPE_MAX, format_duration, format_size

_SECTOR = 512
_VOLUME_BYTES = 1 << 30
"""Of a study that says nothing else."""
_CONVERTED = frozenset({
    "rw", "bs", "bssplit", "bsrange", "iodepth", "numjobs", "runtime", "ramp_time", "size", "rwmixread", "rwmixwrite",
    "rate_iops", "rate", "rate_process", "percentage_random", "ioengine", "stonewall", "wait_for_previous",
    "buffer_compress_percentage", "dedupe_percentage", "filename", "directory",
})  # fmt: skip
_LIKE_ANY_STUDY = frozenset({
    "time_based", "group_reporting", "new_group", "name", "description", "randrepeat", "allrandrepeat", "norandommap",
    "refill_buffers", "thread", "invalidate", "allow_mounted_write", "clat_percentiles", "lat_percentiles",
    "slat_percentiles", "percentile_list", "unified_rw_reporting", "exitall", "randseed", "clocksource", "minimal",
    "eta", "output", "output-format", "per_job_logs", "log_avg_msec", "log_unix_epoch", "log_offset",
    "write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log", "log_hist_msec", "bwavgtime", "iopsavgtime",
    "disk_util", "stats", "significant_figures", "fallocate", "create_serialize", "create_on_open", "overwrite",
    "randommap", "softrandommap", "random_generator", "kb_base", "unit_base", "file_append", "unlink", "loops",
})  # fmt: skip
"""What says how to measure, or what every study does: it changes no load."""
_FLUSHES = ("fsync", "fdatasync", "sync", "sync_file_range", "end_fsync", "fsync_on_close", "syncfs", "write_barrier")
_AFTER_WRITES = ("fsync", "fdatasync")
_DURABLE = ("1", "sync", "dsync")
"""Values of `sync` with which files are opened O_SYNC or O_DSYNC."""


def study_of_job(path: Path, name: str, variables: Mapping[str, str]) -> Converted:
    """The study, and what the job asks that the study does not. Raises Unreadable.

    A job file with several jobs that run together becomes a load of several streams; after a `stonewall`, the first
    group only.
    """
    notes: list[str] = []
    sections = _first_group(read_jobs(path, variables), notes)
    jobs = [Job(section.options) for section in sections]
    streams = {section.name: _stream(section, job, notes) for section, job in zip(sections, jobs, strict=True)}
    load: dict[str, Any] = dict(next(iter(streams.values())))
    load["outstanding"] = _depth(sections, jobs, notes)
    clones = [_count(section, "numjobs", "1") for section in sections]
    load["workers"] = sum(clones)
    load |= _times(sections, notes)
    load |= _durability(sections, jobs, notes)
    shares: Sequence[float] = clones
    if (rates := _rates(sections, jobs, notes)) is not None:
        load["rate_iops"] = round(sum(rates))
        if any(job.by_chance for job in jobs):
            load["arrivals"] = "poisson"
        shares = _shares(sections, rates, clones, notes)
    if len(streams) > 1:
        load["streams"] = {
            job: own | {"share": share} for (job, own), share in zip(streams.items(), shares, strict=True)
        }
    volume = _volume(sections, jobs, clones, notes) | _reduced(sections, notes)
    notes += _left_out(sections)
    return Converted(study_text(name, path.name, volume, load), notes, _lines(sections))


def _first_group(sections: list[Section], notes: list[str]) -> list[Section]:
    """The jobs that run together at the beginning."""
    waits = ("stonewall", "wait_for_previous")
    later = next((at for at, section in enumerate(sections) if at and set(waits) & set(section.options)), None)
    if later is None:
        return sections
    notes.append(
        f"jobs after stonewall are left out ({', '.join(each.name for each in sections[later:])}): one study each"
    )
    return sections[:later]


def _stream(section: Section, job: Job, notes: list[str]) -> dict[str, Any]:
    share = job.read_percent
    if share is None:
        given = next((each for each in ("rwmixwrite", "rwmixread") if each in section.options), "rw")
        if not job.mixed:
            raise section.wrong("rw", f"rw={job.kind}: a study reads and writes only")
        raise section.wrong(given, f"found {section.options[given]!r} where a percentage is expected")
    if not job.held_mix:
        reads, writes = (size_of(text) or 0 for text in per_direction(section.options["rate_iops"], "0"))
        share = round(100 * reads / (reads + writes), 2)
        notes.append(
            f"rate_iops={section.options['rate_iops']} ({section.name}): fio paces reads and writes apart, so "
            f"{share:g} % are reads, whatever rwmixread says"
        )
    return {
        "block_size": format_size(_block(section, job, notes)),
        "read": f"{share:g}%",
        "random": f"{_random(section, job, notes):g}%",
    }


def _block(section: Section, job: Job, notes: list[str]) -> int:
    """One size, in whole sectors."""
    given = next((each for each in ("bssplit", "bsrange") if each in section.options), "bs")
    sizes = job.block_sizes
    if not sizes or not min(sizes):
        raise section.wrong(given, f"found {section.options.get(given, '')!r} where a size is expected")
    size = _most_frequent(section.options[given], job) if given == "bssplit" else sizes[0]
    if len(sizes) > 1:
        notes.append(
            f"{given}={section.options[given]} ({section.name}): a stream has one block size: the study takes "
            f"{format_size(size)}"
        )
    whole = -(-size // _SECTOR) * _SECTOR
    if whole != size:
        notes.append(f"{given}: {size} bytes are not a multiple of {_SECTOR}: the study takes {format_size(whole)}")
    return whole


def _most_frequent(text: str, job: Job) -> int:
    """By its percentages; those that are blank share what is left."""
    part = job.of_directions(per_direction(text, ""))[0]
    pairs = [(size_of(size) or 0, small(share)) for size, _, share in (each.partition("/") for each in part.split(":"))]
    blank = [size for size, share in pairs if share is None]
    left = (100 - sum(share for _, share in pairs if share is not None)) / len(blank) if blank else 0
    return max(pairs, key=lambda pair: left if pair[1] is None else pair[1])[0]


def _random(section: Section, job: Job, notes: list[str]) -> float:
    shares = job.random_percents
    if shares is None:
        raise section.wrong(
            "percentage_random", f"found {section.options['percentage_random']!r} where percentages are expected"
        )
    found = job.of_directions(shares)
    if len(found) > 1:
        notes.append(
            f"percentage_random={section.options['percentage_random']} ({section.name}): reads and writes of a stream "
            f"are alike: the study takes {found[0]:g} %"
        )
    if ":" in section.options.get("rw", ""):
        notes.append(
            f"rw={section.options['rw']} ({section.name}): what follows the colon has no counterpart in a study"
        )
    return found[0]


def _depth(sections: Sequence[Section], jobs: Sequence[Job], notes: list[str]) -> int:
    """I/Os in flight of each worker; that of the first job where they differ."""
    depths = []
    for section, job in zip(sections, jobs, strict=True):
        asked = _count(section, "iodepth", "1")
        depths.append(1 if job.synchronous else asked)
        if job.synchronous and asked > 1:
            which = f"ioengine={job.engine}" if "ioengine" in section.options else f"{DEFAULT_ENGINE}, fio's default,"
            notes.append(
                f"iodepth={asked} ({section.name}): {which} has one I/O in flight whatever iodepth says: outstanding "
                "is 1"
            )
    if len(set(depths)) > 1:
        said = ", ".join(str(depth) for depth in sorted(set(depths)))
        notes.append(f"jobs of different iodepth ({said}): every worker of a study has the same, here {depths[0]}")
    return depths[0]


def _times(sections: Sequence[Section], notes: list[str]) -> dict[str, str]:
    found = {}
    for option, field in (("runtime", "runtime"), ("ramp_time", "warmup")):
        given = list(dict.fromkeys(section.options.get(option, "none") for section in sections))
        if len(given) > 1:
            notes.append(
                f"{option} differs between jobs ({', '.join(given)}): all streams of a study have the first one's"
            )
        if text := sections[0].options.get(option):
            seconds = seconds_of(text)
            if seconds is None:
                raise sections[0].wrong(option, f"found {text!r} where a time is expected")
            if seconds:
                found[field] = format_duration(round(seconds * 1e9))
    if "runtime" not in found:
        notes.append("no runtime: fio ends when it has done `size` once, the study after its own runtime")
    elif not any("time_based" in section.options for section in sections):
        notes.append("no time_based: fio may end before its runtime, when it has done `size` once; the study does not")
    return found


def _rates(sections: Sequence[Section], jobs: Sequence[Job], notes: list[str]) -> list[float] | None:
    """Of each job with its clones; None of a closed loop."""
    rates = [job.rate for job in jobs]
    if all(rates):
        return [rate for rate in rates if rate]
    if any(rate is None or rate for rate in rates):
        said = ", ".join(
            f"{name}={section.options[name]} ({section.name})"
            for section in sections
            for name in ("rate_iops", "rate")
            if name in section.options
        )
        notes.append(f"{said}: not a rate of all jobs and both directions: the study is a closed loop")
    return None


def _shares(
    sections: Sequence[Section], rates: Sequence[float], clones: Sequence[int], notes: list[str]
) -> Sequence[float]:
    """Of streams, by the rates of their jobs, in small numbers."""
    whole = [round(rate) for rate in rates]
    unit = math.gcd(*whole)
    shares = [each / unit for each in whole] if unit else list(rates)
    if len(sections) > 1 and any(
        share * clones[0] != shares[0] * own for share, own in zip(shares, clones, strict=True)
    ):
        notes.append("streams share the workers as they share the rate; fio's jobs have those of numjobs")
    return [int(share) if share == int(share) else round(share, 3) for share in shares]


def _durability(sections: Sequence[Section], jobs: Sequence[Job], notes: list[str]) -> dict[str, Any]:
    """Of the load as a whole: whether writes are durable, and after how many of them a worker flushes."""
    writers = [section for section, job in zip(sections, jobs, strict=True) if job.read_percent != 100]
    found: dict[str, Any] = {}
    durable = {section.options.get("sync", "0") in _DURABLE for section in writers}
    if durable == {True}:
        found["durable"] = True
    elif len(durable) > 1:
        notes.append("sync: some jobs write durably and some do not; a study does for all streams or none: left out")
    flushes = {max(_count(section, name, "0") for name in _AFTER_WRITES) for section in writers}
    if len(flushes) > 1:
        notes.append("fsync: differs between jobs; a study has one for all streams: left out")
    elif each := next(iter(flushes), 0):
        found["fsync"] = each
    return found


def _volume(
    sections: Sequence[Section], jobs: Sequence[Job], clones: Sequence[int], notes: list[str]
) -> dict[str, str]:
    """Its size: that of the only file, or of all files together where each clone has one of its own."""
    sizes = []
    for section in sections:
        text = section.options.get("size")
        if text is None or text.endswith("%"):
            sizes.append(0)
            if text is not None:
                notes.append(f"size={text} ({section.name}): of a target that the study does not know: left out")
        elif (size := size_of(text)) is None:
            raise section.wrong("size", f"found {text!r} where a size is expected")
        else:
            sizes.append(size)
    names = [section.options.get("filename", "") for section in sections]
    if any(names):
        notes.append("filename: the study uses iotax's own volume; name your endpoints under factors: protocol")
    elif any("directory" in section.options for section in sections):
        notes.append("directory: the study uses iotax's own volume; name your endpoints under factors: protocol")
    one_file = all(names) and len(set(names)) == 1
    whole = max(sizes) if one_file else sum(size * own for size, own in zip(sizes, clones, strict=True))
    if whole and whole != sizes[0]:
        notes.append(
            f"size: {format_size(whole)}, the largest of the jobs' parts of one file"
            if one_file
            else f"size: {format_size(whole)}, that of the files of all {sum(clones)} clones together"
        )
    unit = math.lcm(_SECTOR, *(_block(section, job, []) for section, job in zip(sections, jobs, strict=True)))
    wanted = whole or _VOLUME_BYTES
    rounded = wanted // unit * unit
    if not rounded:
        raise sections[0].wrong(
            "size", f"{format_size(wanted)} are less than one block of {format_size(unit)} for each job"
        )
    if rounded != wanted:
        notes.append(f"size: rounded down from {format_size(wanted)} to a multiple of {format_size(unit)}")
    return {"size": format_size(rounded)} if whole or rounded != wanted else {}


def _reduced(sections: Sequence[Section], notes: list[str]) -> dict[str, float]:
    """Ratios, from fio's percentages of what is saved."""
    found: dict[str, float] = {}
    for option, field, most in (
        ("buffer_compress_percentage", "compress", COMPRESS_MAX),
        ("dedupe_percentage", "dedupe", DEDUPE_MAX),
    ):
        saved = {_count(section, option, "0") for section in sections}
        if len(saved) > 1:
            notes.append(f"{option} differs between jobs: the study's data are not reducible so")
        elif percent := min(saved.pop(), 100):
            ratio = most if percent == 100 else min(most, round(100 / (100 - percent), 2))
            if ratio == most:
                notes.append(f"{option}={percent}: a study goes to {field}: {most:g}")
            found[field] = ratio
    return found


def _left_out(sections: Sequence[Section]) -> list[str]:
    """Every option that the study does not follow, once for each value."""
    found: dict[str, None] = {}
    for section in sections:
        for name, value in section.options.items():
            if name in _AFTER_WRITES or (name == "sync" and value in _DURABLE):
                continue
            if name in _FLUSHES and value != "0":
                found[f"{name}={value}: a study flushes after writes only, so this part of the load is left out"] = None
            elif name == "direct":
                if value == "0":
                    found["direct=0: fio goes through the page cache, a study does not"] = None
            elif name not in _CONVERTED and name not in _LIKE_ANY_STUDY and name not in _FLUSHES:
                found[f"{name}={value}: nothing in a study corresponds to it"] = None
    return list(found)


def _count(section: Section, name: str, default: str) -> int:
    text = section.options.get(name, default)
    count = size_of(text)
    if count is None or (count == 0 and name in ("iodepth", "numjobs")):
        raise section.wrong(name, f"found {text!r} where a whole number is expected")
    return count


def _lines(sections: Sequence[Section]) -> dict[tuple[str, ...], str]:
    """Field of the study → line of the job file that it comes from."""
    first = sections[0]
    found: dict[tuple[str, ...], str] = {
        ("load", "outstanding"): str(first.place("iodepth")),
        ("load", "workers"): str(first.place("numjobs")),
        ("load", "runtime"): str(first.place("runtime")),
        ("load", "warmup"): str(first.place("ramp_time")),
        ("load", "rate_iops"): str(first.place("rate_iops")),
        ("volume", "size"): str(first.place("size")),
        ("volume", "compress"): str(first.place("buffer_compress_percentage")),
        ("volume", "dedupe"): str(first.place("dedupe_percentage")),
    }
    for section in sections:
        for place in (("load",), ("load", "streams", section.name)):
            found.setdefault((*place, "block_size"), str(section.place("bs")))
            found.setdefault((*place, "read"), str(section.place("rw")))
            found.setdefault((*place, "random"), str(section.place("rw")))
    return found
