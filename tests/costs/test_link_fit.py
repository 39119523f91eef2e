"""The figures of links from transfers: recovered from noise and hiccups, and put where they were measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import links
from gnnplace.costs.links import fit_link
from gnnplace.costs.measured import LinkSample, MeasuredCosts

SIZES = [2**exponent for exponent in range(8, 27, 2)]


def transfers(rate, overhead, latency, noise=0.0, hiccups=0.0, seed=0, repeats=10):
    """Transfers over a link; a part of them takes up to 30 times as long, or arrives as late."""
    generator = np.random.default_rng(seed)
    size = np.repeat(SIZES, repeats)

    def measured(exact):
        late = np.where(generator.random(len(size)) < hiccups, generator.uniform(2, 30, len(size)), 1)
        return exact * np.exp(generator.normal(0, noise, len(size))) * late

    occupied = measured(overhead + size * 10**9 / rate)
    arrival = occupied + measured(np.full(len(size), latency))
    return [LinkSample(*row) for row in np.stack([size, occupied.round(), arrival.round()], axis=1).astype(int).tolist()]


def test_exact_transfers_give_the_exact_figures():
    found = fit_link(transfers(2 * 10**9, 3000, 50_000))
    assert found.bandwidth_bytes_per_s == pytest.approx(2 * 10**9, rel=1e-3)
    assert found.overhead_ns == pytest.approx(3000, abs=3) and found.latency_ns == 50_000 and found.median_error < 1e-3


@settings(max_examples=15, deadline=None)
@given(st.floats(8.5, 11), st.floats(2.5, 5), st.floats(2, 6), st.integers(0, 2**32))
def test_noise_and_hiccups_hardly_move_the_figures(rate, overhead, latency, seed):
    found = fit_link(transfers(10**rate, 10**overhead, 10**latency, noise=0.05, hiccups=0.1, seed=seed, repeats=20))
    assert found.bandwidth_bytes_per_s == pytest.approx(10**rate, rel=0.1)
    smallest_ns = 10**overhead + SIZES[0] * 10**9 / 10**rate  # what the smallest transfers show of the overhead is that sum
    assert found.overhead_ns == pytest.approx(10**overhead, abs=0.1 * smallest_ns)
    assert found.latency_ns == pytest.approx(10**latency, rel=0.05)


def test_what_a_link_lacks_comes_out_as_nothing():
    found = fit_link([LinkSample(size, size, size) for size in SIZES])  # a byte a nanosecond
    assert found.bandwidth_bytes_per_s == pytest.approx(10**9, rel=1e-3) and found.overhead_ns <= 1 and found.latency_ns == 0
    flat = fit_link([LinkSample(size, 500, 400) for size in SIZES])  # arrives before the sender has noticed
    assert flat.overhead_ns == pytest.approx(500, abs=5) and flat.latency_ns == 0
    assert SIZES[-1] * 10**9 / flat.bandwidth_bytes_per_s < 50  # the largest transfer takes next to no longer


def test_one_size_is_not_enough():
    with pytest.raises(ValueError, match="5 transfers of 1 sizes; two sizes at least tell overhead from bandwidth"):
        fit_link([LinkSample(64, 10, 10)] * 5)


def costs(samples):
    return MeasuredCosts("g", "0" * 64, ("x",), {"cpu": np.array([1])}, {pair: tuple(each) for pair, each in samples.items()})


DEVICES = tuple(Device(name, name[:3], 100, 10**9, 10**9) for name in ("cpu:0", "gpu:0", "gpu:1"))
PAIRS = [("cpu:0", "gpu:0"), ("cpu:0", "gpu:1"), ("gpu:0", "gpu:1")]
CLUSTER = Cluster("three", DEVICES, tuple(Link(src, dst, 77, 7, 7, "bus") for src, dst in PAIRS))


def test_links_get_the_figures_of_their_names_or_else_of_their_kinds():
    measured = costs({("cpu", "gpu"): transfers(10**9, 1000, 10), ("cpu", "gpu:1"): transfers(2 * 10**9, 1000, 20)})
    found = links.measured(CLUSTER, [measured])
    assert [link.latency_ns for link in found.links] == [10, 20, 7]
    assert found.links[1].bandwidth_bytes_per_s == pytest.approx(2 * 10**9, rel=1e-3)
    assert found.links[2] == CLUSTER.links[2] and all(link.channel == "bus" for link in found.links)
    assert links.unmeasured(CLUSTER, [measured]) == [CLUSTER.links[2]]
    assert replace(found, links=CLUSTER.links) == CLUSTER


def test_a_link_with_a_receive_channel_is_occupied_twice_before_its_latency():
    samples = [LinkSample(size, 500 + size, 2 * (500 + size) + 70) for size in SIZES]  # a byte a nanosecond
    one, two = CLUSTER.links[0], replace(CLUSTER.links[1], receive_channel="gpu:1")
    found = links.measured(replace(CLUSTER, links=(one, two)), [costs({("cpu", "gpu"): samples})])
    assert found.links[1].latency_ns == 70 < found.links[0].latency_ns
    assert found.links[1].receive_channel == "gpu:1" and found.links[0].overhead_ns == found.links[1].overhead_ns


def test_samples_of_several_files_count_together_and_a_bad_link_is_named():
    first, second = (costs({("cpu", "gpu"): [LinkSample(size, size, size)]}) for size in (10, 1000))
    assert links.measured(CLUSTER, [first, second]).links[0].bandwidth_bytes_per_s == pytest.approx(10**9, rel=0.01)
    with pytest.raises(ValueError, match="link cpu:0 -> gpu:0: 1 transfers of 1 sizes"):
        links.measured(CLUSTER, [first])
