"""The order of batches: complete, shared out, of similar length, and resumable."""

from collections import Counter

import numpy as np
import pytest

from grls.train.core.datamodule import LengthBucketedSampler, copies_of_examples

LENGTHS = [int(n) for n in np.random.default_rng(0).integers(1, 200, 1013)]


def epoch(sampler: LengthBucketedSampler) -> list[list[tuple[int, int]]]:
    """What a training loop takes: as many batches as the length says, and never one more."""
    batches = iter(sampler)
    return [next(batches) for _ in range(len(sampler))]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 1013])
def test_every_example_comes_once_an_epoch(count: int, shuffle: bool) -> None:
    batches = list(LengthBucketedSampler(LENGTHS[:count], 8, shuffle=shuffle))
    assert sorted(n for batch in batches for n, _ in batch) == list(range(count))
    assert len(batches) == len(LengthBucketedSampler(LENGTHS[:count], 8)) == -(-count // 8)
    assert all(1 <= len(batch) <= 8 for batch in batches)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("count", "ranks"), [(1013, 3), (16, 2), (1, 3), (17, 2), (26, 4), (9, 12)])
def test_ranks_share_the_batches_of_one_process(count: int, ranks: int, shuffle: bool) -> None:
    """Each batch is shared out; where it is too small for all ranks, each example is there as often."""
    whole = epoch(LengthBucketedSampler(LENGTHS[:count], 8, shuffle=shuffle))
    shares = [
        epoch(LengthBucketedSampler(LENGTHS[:count], 8, shuffle=shuffle, rank=r, ranks=ranks))
        for r in range(ranks)
    ]
    assert {len(share) for share in shares} == {len(whole)}
    for batch, *parts in zip(whole, *shares, strict=True):
        assert all(parts)
        times = Counter(draw for part in parts for draw in part)
        assert times == dict.fromkeys(batch, 1 + max(0, ranks - len(batch)))
    if not shuffle:
        for number, batch in enumerate(whole):
            assert copies_of_examples(count, 8, number, ranks) == 1 + max(0, ranks - len(batch))


def test_batches_hold_similar_lengths() -> None:
    def spread(batches: list[list[tuple[int, int]]]) -> float:
        return float(np.mean([np.ptp([LENGTHS[n] for n, _ in batch]) for batch in batches]))

    bucketed = spread(list(LengthBucketedSampler(LENGTHS, 8)))
    assert bucketed < 0.1 * spread(list(LengthBucketedSampler(LENGTHS, 8, shuffle=False)))
    first = [np.mean([LENGTHS[n] for n, _ in batch]) for batch in LengthBucketedSampler(LENGTHS, 8)]
    assert abs(np.corrcoef(first, range(len(first)))[0, 1]) < 0.3, "short ones do not come first"


def test_epochs_differ_and_are_a_function_of_the_seed() -> None:
    sampler, same, other = (LengthBucketedSampler(LENGTHS, 8, seed) for seed in (3, 3, 4))
    first, second = epoch(sampler), epoch(sampler)
    assert {e for batch in first for _, e in batch} == {0}
    assert {e for batch in second for _, e in batch} == {1}
    assert [[n for n, _ in batch] for batch in first] != [[n for n, _ in batch] for batch in second]
    assert [epoch(same), epoch(same)] == [first, second]
    assert epoch(other) != first


def test_without_shuffling_every_pass_is_the_same() -> None:
    sampler = LengthBucketedSampler(LENGTHS[:10], 4, shuffle=False)
    expected = [[(n, 0) for n in some] for some in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])]
    assert epoch(sampler) == epoch(sampler) == expected


def test_resuming_skips_exactly_what_was_done() -> None:
    sampler = LengthBucketedSampler(LENGTHS, 8)
    epochs = [epoch(sampler) for _ in range(3)]
    resumed = LengthBucketedSampler(LENGTHS, 8)
    resumed.resume(1, 5)
    assert list(resumed) == epochs[1][5:]
    assert epoch(resumed) == epochs[2]
    assert len(resumed) == len(epochs[0])
