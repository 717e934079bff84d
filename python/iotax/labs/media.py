"""A volume's data and media in the engine's documents, and a server's report about modelled media."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iotax.labs.base import Outcome
from iotax.places import Event
from iotax.study.media import MediaModel
from iotax.study.model import Volume
from iotax.trial import ModelledMedia


def data_document(volume: Volume) -> dict[str, Any]:
    """Compression and deduplication of written data; empty if they cannot be reduced."""
    if volume.compress == 1 and volume.dedupe == 1:
        return {}
    data = {"compress": volume.compress, "dedupe": volume.dedupe, "block_size_bytes": volume.dedupe_block}
    return {"data": data}


def media_document(media: MediaModel, vms: float = 1.0) -> dict[str, Any]:
    """`vms`: so many virtual machines have their data behind one cache."""
    told: dict[str, Any] = {
        "servers": media.servers,
        "service_ns": media.service or 0,
        "distribution": media.distribution,
    }
    if media.p99 is not None:
        told["p99_ns"] = media.p99
    if media.service_times is not None:
        told |= {"distribution": "empirical", "times_ns": media.service_times}
    if media.collect is not None:
        told["collect"] = {"every_bytes": media.collect_every, "pause_ns": media.collect}
    if media.seek is not None:
        spindles: dict[str, Any] = {
            "seek_ns": media.seek,
            "turn_ns": media.turn_ns,
            "read_hits_ppm": round(1e6 * media.read_hits(vms)),
        }
        told["spindles"] = spindles
        if media.destage is not None:
            spindles["destage_ppm"] = round(1e4 * media.destage)
        if media.parity is not None:
            spindles["parity"] = {"group": media.raid_group or media.servers, "disks": media.parity}
    return told


def done_by(status: Event) -> ModelledMedia:
    """Activity of the media of a server's only volume since it started, from its `status`."""
    [media] = status["modelled"].values()
    return ModelledMedia.model_validate(media)


def with_media(outcome: Outcome, before: ModelledMedia | None, after: ModelledMedia | None) -> Outcome:
    """Adds the activity of the server's media in between, if they are modelled."""
    if before is None or after is None:
        return outcome
    return replace(outcome, result=outcome.result.model_copy(update={"media": after.since(before)}))
