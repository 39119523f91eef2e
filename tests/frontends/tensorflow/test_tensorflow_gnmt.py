"""GNMT: its sizes by formula and as published, its blocks and time steps, and its loss beside one computed by hand."""

from functools import cache, partial

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from datasets.build import tensorflow_gnmt
from gnnplace.corpus import manifest
from gnnplace.graph import NONE

v1 = tf.compat.v1

SMALL = {"layers": 3, "units": 8, "steps": 3, "batch": 2, "vocabulary": 11}
ROWS = np.array([[1, 2], [3, 1], [4, 1]], dtype=np.int32)
FEEDS = {"input/source:0": ROWS, "input/inputs:0": ROWS[::-1] + 1, "input/targets:0": ROWS + 2}

graph = cache(manifest.graph)


def cell_weights(layers: int) -> int:
    """Of all LSTM kernels, by hand: both ways of the first encoder layer, the second, which reads both, the others, the decoder's."""
    units = 1024
    encoder = 2 * (2 * units) * (4 * units) + (3 * units) * (4 * units) + (layers - 2) * (2 * units) * (4 * units)
    return encoder + layers * (3 * units) * (4 * units)


def parameters(layers: int) -> int:
    """Kernels and biases of cells, attention, embeddings, softmax."""
    biases = (1 + layers + layers) * 4 * 1024
    return cell_weights(layers) + biases + (2 * 1024 + 1) * 1024 + 2 * 32_000 * 1024 + 32_000 * (1024 + 1)


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_gnmt_has_the_flops_and_the_parameters_of_its_formula(layers):
    step = graph(f"gnmt-{layers}")
    query, score, keys = 2 * 64 * 1024 * 1024, 2 * (64 * 40) * 1024, 2 * (64 * 40) * 1024 * 1024
    forward = 40 * (2 * 64 * cell_weights(layers) + query + score + 2 * 64 * 1024 * 32_000) + keys
    matmul = step.canonical_kind.among(["matmul"])
    flops = {phase: int(step.flops[matmul & step.phase.among([phase])].sum()) for phase in ("forward", "backward_weight", "backward_data")}
    assert flops["forward"] == flops["backward_weight"] == forward
    assert flops["backward_data"] == forward - query  # the first query is zero, no output of a layer
    contexts = step.canonical_kind.among(["batch_matmul"]) & step.phase.among(["forward"])
    assert step.flops[contexts].sum() == 40 * 2 * 64 * 40 * 1024
    assert step.persistent_bytes.sum() == 3 * 4 * parameters(layers) + 2 * 4


def test_eight_layers_have_the_published_parameters():
    assert parameters(8) == pytest.approx(278e6, rel=0.011)  # Shazeer et al. (2017), table 2
    assert parameters(8) - 2 * 32_000 * 1024 == pytest.approx(214e6, rel=0.01)  # its multiply-adds of a time step


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_blocks_are_layers_and_all_layers_have_all_time_steps(layers):
    step = graph(f"gnmt-{layers}")
    ends = [("encoder/embedding", 0), ("decoder/embedding", 0), ("decoder/attention", 0), ("decoder/softmax", layers - 1)]
    both = [("encoder/lstm_0/onwards", 0), ("encoder/lstm_0/backwards", 0), ("decoder/lstm_0", 0)]
    others = [(f"{side}/lstm_{layer}", layer) for side in ("encoder", "decoder") for layer in range(1, layers)]
    for scope, block in (*ends, *both, *others):
        ops = step.layer.among([scope])
        assert set(step.block[ops].tolist()) == {block}
        assert sorted(set(step.time_step[ops].tolist())) == [NONE, *range(40)]
    assert sorted(set(step.block.tolist())) == [NONE, *range(layers)]


def test_gnmt_trains():
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(0)
        loss, train = tensorflow_gnmt.build(**SMALL)
        session.run(v1.global_variables_initializer())
        losses = [float(session.run([loss, train], FEEDS)[0]) for _ in range(30)]
    assert losses[-1] < losses[0] - 0.05


def test_the_loss_is_that_of_the_paper():
    with tf.Graph().as_default(), v1.Session() as session:
        loss, _ = tensorflow_gnmt.build(**SMALL)
        session.run(v1.global_variables_initializer())
        generator = np.random.default_rng(0)
        for variable in v1.trainable_variables():
            variable.load(generator.normal(size=variable.shape), session)
        weights = {variable.op.name: session.run(variable.value()) for variable in v1.trainable_variables()}
        found = session.run(loss, FEEDS)
    np.testing.assert_allclose(found, loss_by_hand(weights, *FEEDS.values()), rtol=1e-4)


def loss_by_hand(weights: dict[str, np.ndarray], source: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> float:
    """The mean cross entropy of three layers a side, step by step."""
    layer = partial(run, weights)
    zeros = np.zeros((2, 8))
    read = [weights["encoder/embedding/table"][tokens] for tokens in source]
    onwards, backwards = layer("encoder/lstm_0/onwards", read), layer("encoder/lstm_0/backwards", read[::-1])[::-1]
    second = layer("encoder/lstm_1", [np.concatenate(pair, axis=1) for pair in zip(onwards, backwards, strict=True)])
    third = [below + above for below, above in zip(second, layer("encoder/lstm_2", second), strict=True)]
    memory, losses = np.stack(third, axis=1), []
    states = [(zeros, zeros)] * 3
    for tokens, wanted in zip(inputs, targets, strict=True):
        context = attended(weights, memory, states[0][1])
        below = weights["decoder/embedding/table"][tokens]
        for i in range(3):
            states[i] = cell(weights, f"decoder/lstm_{i}", np.concatenate([below, context], axis=1), states[i])
            below = states[i][1] + (below if i == 2 else 0)
        logits = below @ weights["decoder/softmax/kernel"] + weights["decoder/softmax/bias"]
        losses.append(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(2), wanted])
    return float(np.mean(losses))


def attended(weights: dict[str, np.ndarray], memory: np.ndarray, query: np.ndarray) -> np.ndarray:
    asked = (query @ weights["decoder/attention/query_kernel"])[:, None]
    inside = np.tanh(memory @ weights["decoder/attention/memory_kernel"] + asked)
    scores = np.exp((inside @ weights["decoder/attention/score_kernel"])[:, :, 0])
    return (scores[:, :, None] * memory).sum(axis=1) / scores.sum(axis=1, keepdims=True)


def run(weights: dict[str, np.ndarray], scope: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    state = (np.zeros((2, 8)), np.zeros((2, 8)))
    states = [state := cell(weights, scope, x, state) for x in inputs]
    return [output for _, output in states]


def cell(weights: dict[str, np.ndarray], scope: str, x: np.ndarray, state: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    gates = np.concatenate([x, state[1]], axis=1) @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"]
    take, candidate, keep, show = np.split(gates, 4, axis=1)
    memory = state[0] * sigmoid(keep + 1) + sigmoid(take) * np.tanh(candidate)
    return memory, np.tanh(memory) * sigmoid(show)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
