"""`videoinfer models`: what can be run, and under which licence."""

from typing import Any

from ..licence import is_accepted, licence_for

# The hub id of each family's released weights.
RELEASED = {"MiniMax-H3": "MiniMaxAI/MiniMax-H3"}


def list_models() -> list[dict[str, Any]]:
    """The embedded model first, then each supported family with the hub id of its released weights."""
    from ..families import FAMILIES

    models: list[dict[str, Any]] = [
        {
            "name": "demo",
            "what": "embedded toy model with the architecture of MiniMax-H3; needs no download",
            "workflows": ["t2va", "fl2va", "ref2va"],
            "licence": "Apache-2.0",
            "notice": None,
        }
    ]
    for family in FAMILIES:
        name = RELEASED.get(family.name, family.name)
        licence = licence_for(name)
        models.append(
            {
                "name": name,
                "what": f"{family.name} family: this hub id, or a folder whose index says "
                f"{' or '.join(family.pipeline_classes)}",
                "workflows": list(family.workflows),
                "licence": licence.name if licence else None,
                "notice": licence.notice if licence else None,
                "accepted": is_accepted(licence) if licence else True,
            }
        )
    return models
