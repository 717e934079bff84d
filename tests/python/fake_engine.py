#!/usr/bin/env python3
"""Follows docs/reference/engine.md without measuring anything, and fails on request.

The folder in $FAKE_ENGINE counts the load runs (`runs`), stores every document (`documents.jsonl`) and may contain
`faults.json`: {"3": "die", "*": "slow"}, by the number of the run. Faults: die, hang, malformed, kill_server,
kill_server_later, wrong_shape, no_ios, slow, disturbed, error:KIND.
`endpoints.json` describes endpoints: {uri: checked-event or {"error": KIND}}.
`server.json` with `capacity_iops` makes it behave like a queue; `series.json` is the series of each result.
"""

import fcntl
import os
import select
import sys
import time
from _json import encode_basestring_ascii
from _signal import SIGKILL  # ty: ignore[import-not-found]

# Not imported: json and signal take longer to load than everything done here, and tests start this a thousand times.

FOLDER = os.environ["FAKE_ENGINE"]


def say(**event):
    print(written(event), flush=True)


def written(value):
    """The value as JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(str(name))}: {written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    return {"True": "true", "False": "false", "None": "null"}.get(repr(value), repr(value))


def read(text):
    """Parses JSON that tests wrote."""
    return eval(text, {"__builtins__": {}, "true": True, "false": False, "null": None})


def fail(kind, message):
    say(event="error", kind=kind, message=message, where="fake")
    sys.exit(1)


def known(name):
    try:
        with open(f"{FOLDER}/{name}") as file:
            return read(file.read())
    except FileNotFoundError:
        return {}


def note(command, document):
    with open(f"{FOLDER}/documents.jsonl", "a") as file:
        file.write(written({"to": command, **document}) + "\n")


def next_run():
    with open(f"{FOLDER}/runs", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.truncate(0)
        file.write(str(number))
    return number


def wait(seconds):
    """Sleeps, but exits when standard input is closed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and not os.read(0, 4096):
            sys.exit(0)


def serve(document):
    if "serve" in known("faults.json"):
        fail(known("faults.json")["serve"], "the server was told to fail")
    [volume] = document["volumes"]
    portals = [
        {"protocol": each["protocol"], "address": "127.0.0.1:1", "endpoint": f"{each['protocol']}://127.0.0.1:1/v0"}
        for each in document["exports"]
    ]
    say(
        event="ready",
        pid=os.getpid(),
        driver="fake",
        volumes=[{"name": volume["name"], "size_bytes": volume["size_bytes"], "path": f"/proc/{os.getpid()}/fd/7"}],
        portals=portals,
    )
    for line in sys.stdin:
        command = read(line)
        note("serve-command", command)
        if command["command"] == "fill":
            say(event="filled", volume=command["volume"])
        elif command["command"] == "stop":
            return


def stream(ios, latency_ns):
    return {
        "ios": ios,
        "bytes": ios * 4096,
        "errors": 0,
        "latency_sum_ns": ios * latency_ns,
        "latency_min_ns": latency_ns,
        "latency_max_ns": latency_ns,
        "histogram": {"unit": "ns", "significant_digits": 3, "counts": [[latency_ns, ios]] if ios else []},
    }


def process(pid, total_ns):
    return {"pid": pid, "total_ns": total_ns, "user_ns": total_ns // 2, "system_ns": total_ns - total_ns // 2}


def machine(busy_ns):
    names = ("user", "nice", "system", "irq", "softirq", "steal", "idle", "iowait")
    core = {"cpu": 0, **{f"{name}_ns": 0 for name in names}, "user_ns": busy_ns}
    return {"cores": [core], "busy_ns": busy_ns}


def served(document, capacity_iops):
    """I/Os and latency of a server with this capacity and 100 µs per request, in a closed or an open loop."""
    seconds, rate_iops = document["runtime_ns"] / 1e9, document["pacing"].get("rate_iops")
    if rate_iops is None:
        total = document["workers"] * document["outstanding"]
        rate_iops = min(capacity_iops, total / 100e-6)
        return round(rate_iops * seconds), round(total / rate_iops * 1e9)
    rate_iops = min(rate_iops, capacity_iops * 0.999)
    return round(rate_iops * seconds), round(100_000 / (1 - rate_iops / capacity_iops))


def result(document, ios, disturbed, **more):
    pacing = document["pacing"]
    latency_ns = 10_000 + sum(document["endpoint"].encode()) % 1000 * 10
    if pacing["kind"] != "open" and ios:  # Little's law
        latency_ns = document["workers"] * document["outstanding"] * document["runtime_ns"] // ios
    if "capacity_iops" in known("server.json"):
        ios, latency_ns = served(document, known("server.json")["capacity_iops"])
    if disturbed:
        latency_ns *= 1000
    reads = ios * document["read_percent"] // 100
    target = document["watch_pids"].get("target")
    offered = pacing["rate_iops"] * document["runtime_ns"] // 10**9 if pacing["kind"] == "open" else 0
    say(
        event="result",
        **(
            {"open": {**pacing, "offered": offered, "achieved": ios / offered if offered else 1.0}}
            if pacing["kind"] == "open"
            else {}
        ),
        engine_version="0-fake",
        driver="fake",
        endpoint=document["endpoint"],
        window={"start_unix_ns": time.time_ns(), "start_ns": 0, "duration_ns": document["runtime_ns"]},
        read=stream(reads, latency_ns),
        write=stream(ios - reads, latency_ns),
        cpu={
            "initiator": process(os.getpid(), ios * 2000),
            "target": process(target, ios * 3000) if target else None,
            "machine": machine(ios * (5000 if target else 2000)),
        },
        series=known("series.json") or [],
        outstanding={
            "workers": document["workers"],
            "per_worker": document["outstanding"],
            "mean": ios * latency_ns / document["runtime_ns"],
        },
        verify={"checked_blocks": reads, "never_written_blocks": 0, "wrong_blocks": 0},
        checks={"errors": 0, "start_skew_ns": 0, "run_queue_wait": 0.0, "clock": "CLOCK_MONOTONIC"},
        a_field_of_tomorrow=1,
        **more,
    )


def slices(document, index, ios, duration_ns):
    """The slices of one load of a session, all alike, in the order of the document."""
    places = [each for order in document["rounds"] for each in order]
    return [
        {
            "round": place // len(document["loads"]) + 1,
            "place": place + 1,
            "start_ns": place * duration_ns,
            "duration_ns": duration_ns,
            "ios": ios,
            "bytes": ios * 4096,
            "latency_sum_ns": ios * 10_000,
            "latency_p50_ns": 10_000,
            "latency_p99_ns": 10_000,
            "cpu_window_ns": duration_ns,
            "initiator_cpu_ns": ios * 2000,
            "target_cpu_ns": ios * 3000 if document["loads"][index]["load"]["watch_pids"] else None,
            "machine_busy_ns": ios * 5000,
        }
        for place, each in enumerate(places)
        if each == index
    ]


def session(document):
    """A session counts as one run: die and slow take effect after the connections are up, error:KIND before."""
    number = next_run()
    faults = known("faults.json")
    fault = faults.get(str(number), faults.get("*", ""))
    if fault.startswith("error:"):
        fail(fault.removeprefix("error:"), "the load was told to fail")
    for each in document["loads"]:
        say(event="connected", id=each["id"], driver="fake", endpoint=each["load"]["endpoint"], size_bytes=1 << 30)
    first = document["loads"][0]
    say(event="sample", id=first["id"], round=1, at_ns=1, phase="run", iops=1000.0, latency_p50_ns=1, latency_p99_ns=2)
    if fault == "die":
        os.kill(os.getpid(), SIGKILL)
    if fault == "slow":
        wait(3600)
    for index, each in enumerate(document["loads"]):
        load = each["load"]
        ios = 1000 * load["outstanding"]
        if "capacity_iops" in known("server.json"):
            ios, _ = served(load | {"runtime_ns": document["slice_ns"]}, known("server.json")["capacity_iops"])
        own = slices(document, index, ios, document["slice_ns"])
        result(
            load | {"runtime_ns": len(own) * document["slice_ns"]},
            len(own) * 1000 * load["outstanding"],
            False,
            id=each["id"],
            slices=own,
        )


def load(document):
    task = document["task"]
    if task == "idle":
        window = {"start_unix_ns": time.time_ns(), "start_ns": 0, "duration_ns": document["runtime_ns"]}
        say(event="idle", window=window, cpu={"initiator": process(os.getpid(), 1000), "machine": machine(5000)})
        return
    endpoint = document["endpoint"]
    if task == "check":
        described = known("endpoints.json").get(endpoint, {"size_bytes": 1 << 40, "holds": "zeros"})
        if "error" in described:
            fail(described["error"], "the endpoint was told to fail")
        say(event="checked", **{"block_size_bytes": 512, "what": None, "at_bytes": None, **described})
        return
    if task == "fill":
        say(event="progress", done_bytes=1, total_bytes=2)
        say(event="filled", bytes=2, seconds=0.1)
        return
    number = next_run()
    faults = known("faults.json")
    fault = faults.get(str(number), faults.get("*", ""))
    print(f"run {number} {fault}", file=sys.stderr)
    if fault.startswith("error:"):
        fail(fault.removeprefix("error:"), "the load was told to fail")
    say(event="connected", driver="fake", endpoint=endpoint, size_bytes=1 << 30, negotiated={"Key": "Value"})
    say(event="sample", at_ns=1, phase="warmup", iops=1000.0, latency_p50_ns=1000, latency_p99_ns=2000)
    if fault == "die":
        os.kill(os.getpid(), SIGKILL)
    if fault == "hang":
        wait(3600)
    if fault == "kill_server":
        os.kill(document["watch_pids"]["target"], SIGKILL)
        fail("lost", "the connection went away")
    if fault == "kill_server_later":
        parent = os.getpid()
        stands, tells = os.pipe()
        if not os.fork():
            os.setsid()  # the load's own process group ends with the load
            os.write(tells, b".")
            while os.getppid() == parent:  # until the load has ended
                time.sleep(0.01)
            os.kill(document["watch_pids"]["target"], SIGKILL)
            os._exit(0)
        os.read(stands, 1)
        fail("lost", "the connection went away")
    if fault == "malformed":
        print("{this is not JSON", flush=True)
        return
    if fault == "wrong_shape":
        say(event="result", driver="fake")
        return
    took_s = 0 if "FAKE_INSTANT" in os.environ else (document["warmup_ns"] + document["runtime_ns"]) / 1e9
    wait(3600 if fault == "slow" else took_s)
    rate_iops = document["pacing"].get("rate_iops")
    ios = 1000 * document["outstanding"] if rate_iops is None else rate_iops * document["runtime_ns"] // 10**9
    result(document, 0 if fault == "no_ios" else ios, fault == "disturbed")


def main():
    if sys.argv[1:] == ["--version"]:
        print("iotax-engine 0-fake")
        return
    document = read(sys.stdin.readline())
    note(sys.argv[1], document)
    {"serve": serve, "load": load, "session": session}[sys.argv[1]](document)


main()
