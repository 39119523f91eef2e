"""The papers' op counts beside ours, and what makes the difference: the same TensorFlow steps, written as TensorFlow 1.3 wrote them.

A graph of the corpus holds the ops that one step computes; a paper counts what stands in the graph that was handed to TensorFlow. The
columns add that, one thing after the other: ops that no step fetches, initialisers and saver, what TensorFlow 1.3 wrote for gradients and
for batch norm, and dropout of what each LSTM cell yields, which the papers do not speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import tensorflow as tf
from tensorflow.python.ops import math_grad

from datasets import build_tensorflow
from datasets.build import tensorflow_lstm, tensorflow_nmt, tensorflow_rnnlm
from experiments import output, results
from gnnplace.corpus import manifest

v1 = tf.compat.v1
PATH = Path(__file__).resolve().parent / "results" / "op_counts.json"
HIERARCHICAL, COLOCRL = "Mirhoseini et al. 2018", "Mirhoseini et al. 2017"
PAPERS: Sequence[tuple[str, str, int]] = (
    ("inception-v3-b1", HIERARCHICAL, 24_713),
    ("inception-v3-b32", COLOCRL, 31_180),
    ("resnet-152", HIERARCHICAL, 20_586),
    ("rnnlm-2", HIERARCHICAL, 9_021),
    ("rnnlm-2", COLOCRL, 8_943),
    ("nmt-2", HIERARCHICAL, 28_044),
    ("nmt-2", COLOCRL, 22_097),
    ("nmt-4", HIERARCHICAL, 46_600),
    ("nmt-8", HIERARCHICAL, 83_712),
)
COUNTS = ("step", "graph", "initialised", "gradients", "batch norm", "dropout")
HEADER = ["graph", "paper", "ops there", "the step", "its graph", "initialisers, saver", "old gradients", "old batch norm", "dropout"]


def counts(name: str) -> dict[str, int]:
    """How many ops the training step called `name` has, by what is counted; each count has what those before it have."""
    found = {"step": manifest.graph(name).num_ops, "graph": _ops(name, bare=True), "initialised": _ops(name)}
    with old_gradients():
        found["gradients"] = _ops(name)
        with old_batch_norm():
            found["batch norm"] = _ops(name)
            with dropout():
                found["dropout"] = _ops(name)
    return found


def _ops(name: str, *, bare: bool = False) -> int:
    """The ops of the graph in which a step is built; a `bare` one has no op that initialises, saves or restores all variables."""
    with tf.Graph().as_default() as graph:
        build_tensorflow.WORKLOADS[name].build()
        if not bare:
            v1.global_variables_initializer()
            v1.train.Saver()
        return len(graph.get_operations())


@contextmanager
def gated() -> Iterator[None]:
    """The gradients of an op wait for each other, as `Optimizer.minimize` writes them."""
    with patch.object(v1, "gradients", partial(v1.gradients, gate_gradients=True)):
        yield


@contextmanager
def old_gradients() -> Iterator[None]:
    """Gated gradients of TensorFlow 1.3: those of sums and products of equal shapes ask for their shapes and sum over nothing."""
    with (
        patch.object(math_grad, "_ShapesFullySpecifiedAndEqual", lambda *tensors: False),
        patch.object(math_grad, "_InferGradientReductionAxes", lambda *shapes: (None, None)),
        gated(),
    ):
        yield


@contextmanager
def old_batch_norm() -> Iterator[None]:
    """Batch norm of moments and arithmetic: TensorFlow 1.3's, unless its user asked for the fused op."""

    def unfused(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float, **_: Any) -> SimpleNamespace:
        mean, variance = tf.nn.moments(x, axes=(0, 1, 2))
        y = tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)
        return SimpleNamespace(y=y, batch_mean=mean, batch_variance=variance)

    with patch.object(tf.raw_ops, "FusedBatchNormV3", unfused):
        yield


@contextmanager
def dropout(kept: float = 0.8) -> Iterator[None]:
    """What each LSTM cell yields is dropped in part, by the ops of TensorFlow 1.3's `DropoutWrapper`."""

    def dropped(*arguments: Any) -> Callable[[tf.Tensor, int], tf.Tensor]:
        step = tensorflow_lstm.lstm(*arguments)

        def yielded(x: tf.Tensor, time: int) -> tf.Tensor:
            y = step(x, time)
            keep = tf.constant(kept)
            return y / keep * tf.floor(keep + v1.random_uniform(tf.shape(y)))

        return yielded

    with patch.object(tensorflow_rnnlm, "lstm", dropped), patch.object(tensorflow_nmt, "lstm", dropped):
        yield


def lines(found: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """The table: what each paper counts, and ours."""
    return [[name, paper, f"{ops:,}", *(f"{found[name][count]:,}" for count in COUNTS)] for name, paper, ops in PAPERS]


def main() -> None:
    chosen = output.parser(__doc__).parse_args()
    found = {name: counts(name) for name in dict.fromkeys(name for name, _, _ in PAPERS)}
    results.save(PATH, {"provenance": results.provenance(PATH.parents[1]), "graphs": found})
    table = results.markdown_table(HEADER, lines(found))
    output.show(table, found, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
