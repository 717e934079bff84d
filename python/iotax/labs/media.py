"""Media as a model, as the engine's documents say them."""

from __future__ import annotations

from typing import Any

from iotax.study.media import MediaModel


def media_document(media: MediaModel, vms: float = 1.0) -> dict[str, Any]:
    """`vms`: so many virtual machines have their data behind one cache."""
    told: dict[str, Any] = {
        "servers": media.servers,
        "service_ns": media.service or 0,
        "distribution": media.distribution,
    }
    if media.seek is not None:
        told["spindles"] = {
            "seek_ns": media.seek,
            "turn_ns": media.turn_ns,
            "read_hits_ppm": round(1e6 * media.read_hits(vms)),
        }
        if media.destage is not None:
            told["spindles"]["destage_ppm"] = round(1e4 * media.destage)
    return told
