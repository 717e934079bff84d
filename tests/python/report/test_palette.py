import itertools

import pytest

from iotax.report.palette import COLOURS, looks
from report.test_browser import contrast


def rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_marks_stand_out_from_the_page(scheme):
    page = rgb(getattr(COLOURS["page"], scheme))
    for name in ("ink", "soft", "gray", "blue", "vermilion", "green", "purple", "ochre", "wine"):
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
