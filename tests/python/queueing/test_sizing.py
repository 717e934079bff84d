"""Study 3's question: cores for 70,000 IOPS at 81 µs (NFS) and 41 µs (FC) of CPU per I/O."""

import pytest

from iotax.queueing import MMc, SizingTarget, size

US = 1e-6
NFS, FC = 81 * US, 41 * US


@pytest.mark.parametrize(
    ("target", "nfs", "fc"),
    [
        (SizingTarget(0.8), 8, 4),
        (SizingTarget(1.0, response_max_ratio=1.25), 8, 5),
        (SizingTarget(1.0, response_max_ratio=1.1), 9, 5),
        (SizingTarget(0.8, response_max_ratio=1.1), 9, 5),
    ],
)
def test_cores_for_70k_iops(target, nfs, fc):
    assert size(70_000, NFS, target).servers == nfs
    assert size(70_000, FC, target).servers == fc


def test_published_sizes_do_not_survive_the_model():
    assert MMc(70_000, NFS, 6).utilisation == pytest.approx(0.945)
    assert [MMc(70_000, NFS, c).response_s / US for c in (6, 7, 8)] == pytest.approx(
        [290.2825, 111.8882, 90.8971], rel=1e-6
    )
    assert [MMc(70_000, FC, c).response_s / US for c in (3, 4, 5)] == pytest.approx(
        [330.9129, 57.5524, 44.9495], rel=1e-6
    )


def test_a_size_says_what_bound_it():
    assert size(70_000, NFS, SizingTarget(0.8)).bound_by == "utilisation"
    assert size(70_000, NFS, SizingTarget(0.8, response_max_ratio=1.1)).bound_by == "response"


def test_storage_time_counts_against_an_absolute_target():
    tight = SizingTarget(0.9, response_max_s=600 * US)
    assert size(70_000, NFS, tight, storage_s=500 * US).servers > size(70_000, NFS, tight).servers
    assert size(70_000, NFS, tight, storage_s=500 * US).response_s <= 600 * US


def test_a_target_below_the_service_time_is_refused():
    with pytest.raises(ValueError, match="81 µs"):
        size(70_000, NFS, SizingTarget(response_max_s=80 * US))


def test_response_curve_is_the_published_one():
    curve = [MMc(busy * 8 / NFS, NFS, 8) for busy in (0, 0.2, 0.4, 0.6, 0.8)]
    assert [round(queue.response_s / US) for queue in curve] == [81, 81, 81, 85, 104]
