import itertools

import numpy as np
import pytest

from iotax.report.palette import COLOURS, looks
from iotax.wording import PROTOCOL_TITLES
from report.test_browser import contrast


def rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_marks_stand_out_from_the_page(scheme):
    page = rgb(getattr(COLOURS["page"], scheme))
    arms = [look.colour.name for look in looks([*PROTOCOL_TITLES, "a", "b", "c"], {}).values()]
    for name in ("ink", "soft", *arms):
        assert contrast(rgb(getattr(COLOURS[name], scheme)), page) >= 4, name


def test_a_protocol_keeps_its_colour_whatever_it_is_compared_with():
    few = looks(["iscsi", "nvme-tcp"], {})
    many = looks(["local", "nfs3", "nvme-tcp", "iscsi"], {})
    assert all(few[arm].colour == many[arm].colour for arm in few)
    assert few["iscsi"].colour.name == "blue"


def test_arms_of_one_protocol_get_colours_of_their_own():
    found = looks(["old", "new", "third"], {"old": "iscsi", "new": "iscsi", "third": "nfs3"})
    assert found["old"].colour.name == "blue"
    assert found["third"].colour.name == "vermilion"
    names = [look.colour.name for look in found.values()]
    assert len(set(names)) == 3
    assert len({look.shape for look in found.values()}) == 3


def test_six_arms_are_told_apart_by_colour_and_shape():
    found = looks([f"arm {i}" for i in range(6)], {})
    for one, other in itertools.combinations(found.values(), 2):
        assert (one.colour, one.shape) != (other.colour, other.shape)
        assert one.colour != other.colour


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_protocol_and_variant_is_told_apart(scheme):
    """Distances in OKLab, where 0.02 is just noticeable."""
    arms = [*PROTOCOL_TITLES, "old", "new", "iscsi · fio"]
    found = looks(arms, {"old": "iscsi", "new": "nfs4.1"})
    assert len({look.colour.name for look in found.values()}) == len(arms) == 14
    places = [oklab(getattr(look.colour, scheme)) for look in found.values()]
    for one, other in itertools.combinations(places, 2):
        assert np.linalg.norm(one - other) > 0.07


def test_generators_keep_their_colours_too():
    found = looks(["iotax", "fio"], {})
    assert looks(["fio"], {})["fio"].colour == found["fio"].colour != found["iotax"].colour


def oklab(colour: str) -> np.ndarray:
    """OKLab coordinates (Ottosson 2020)."""
    parts = np.array(rgb(colour)) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ linear
    )
    return (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ cones
    )
