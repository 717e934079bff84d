"""Studies as JSON; docs/reference/json.md."""

from __future__ import annotations

from typing import Any

from iotax.design import Plan
from iotax.labs.base import CheckItem
from iotax.study import Study


def plan_document(study: Study, plan: Plan, notes: list[str]) -> dict[str, Any]:
    return {
        **_head(study, plan),
        "blocks": plan.blocks,
        "seed": study.design.seed,
        "settings": study.model_dump(mode="json", include={"lab", "volume", "load", "connection"}),
        "trials": [
            {
                "trial": each.id,
                "order": each.order,
                "block": each.block,
                "replicate": each.replicate,
                "role": each.role,
                "levels": each.treatment,
                "duration_s": plan.trial_ns[each.id] / 1e9,
            }
            for each in plan.trials
        ],
        "notes": notes,
    }


def check_document(study: Study, plan: Plan, findings: list[CheckItem]) -> dict[str, Any]:
    kinds = [each.kind for each in findings]
    return {
        **_head(study, plan),
        "outcome": next((kind for kind in ("refused", "error") if kind in kinds), "ok"),
        "findings": [{"kind": each.kind, "subject": each.subject, "message": each.message} for each in findings],
    }


def studies_document(planned: dict[str, tuple[Study, Plan]]) -> dict[str, Any]:
    return {"studies": [{"name": name, **_head(study, plan)} for name, (study, plan) in planned.items()]}


def _head(study: Study, plan: Plan) -> dict[str, Any]:
    return {
        "study": study.name,
        "question": study.question,
        "trials_planned": len(plan.trials),
        "trials_max": plan.trials_max,
        "duration_s": plan.duration_ns / 1e9,
        "duration_max_s": plan.duration_max_ns / 1e9,
    }
