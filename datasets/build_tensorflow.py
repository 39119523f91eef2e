"""Rebuilds the TensorFlow graphs of the corpus: `python -m datasets.build_tensorflow [NAME ...]`, all of them without a name.

The same version of TensorFlow gives the same graph, checksum included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import tensorflow as tf

from datasets.build import (
    tensorflow_gnmt,
    tensorflow_inception,
    tensorflow_nasnet,
    tensorflow_nmt,
    tensorflow_resnet,
    tensorflow_rnnlm,
    tensorflow_vgg,
)
from datasets.build.versions import versions
from gnnplace.corpus import manifest, splits
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.graph import ComputationGraph


@dataclass(frozen=True)
class Workload:
    """A training step: what builds its loss and train op in the default graph, the blocks of its layers, where it comes from."""

    build: Callable[[], tuple[tf.Tensor, tf.Operation]]
    blocks: Mapping[str, int]
    family: str
    lineage: str
    source: str


RECURRENT = ((2, 64, ""), (2, 256, "-b256"), (4, 64, ""), (8, 64, ""))  # layers, batch, what that adds to the name
INCEPTION = "datasets/build/tensorflow_inception.py, 299 x 299 x 3 with auxiliary head; RMSProp; batch "
WORKLOADS = {
    "inception-v3-b1": Workload(
        partial(tensorflow_inception.build, batch=1), tensorflow_inception.blocks(), "inception", "convolutional", INCEPTION + "1"
    ),
    "inception-v3-b32": Workload(
        partial(tensorflow_inception.build, batch=32), tensorflow_inception.blocks(), "inception", "convolutional", INCEPTION + "32"
    ),
    **{
        f"rnnlm-{layers}{variant}": Workload(
            partial(tensorflow_rnnlm.build, layers, batch=batch), tensorflow_rnnlm.blocks(layers), "rnnlm", "recurrent",
            f"datasets/build/tensorflow_rnnlm.py, {layers} layers of 2048, 40 steps, vocabulary 10000; batch {batch}; Adam",
        )
        for layers, batch, variant in RECURRENT
    },
    **{
        f"nmt-{layers}{variant}": Workload(
            partial(tensorflow_nmt.build, layers, batch=batch), tensorflow_nmt.blocks(layers), "nmt", "recurrent",
            f"datasets/build/tensorflow_nmt.py, {layers} + {layers} layers of 1024, attention, 40 + 40 steps, vocabulary 32000; "
            f"batch {batch}; Adam",
        )
        for layers, batch, variant in RECURRENT
    },
    **{
        f"gnmt-{layers}": Workload(
            partial(tensorflow_gnmt.build, layers), tensorflow_gnmt.blocks(layers), "gnmt", "recurrent",
            f"datasets/build/tensorflow_gnmt.py, {layers} + {layers} layers of 1024, attention, 40 + 40 steps, vocabulary 32000; "
            "batch 64; Adam",
        )
        for layers in (2, 4, 8)
    },
    "gnmt-8-s100": Workload(
        partial(tensorflow_gnmt.build, 8, steps=100), tensorflow_gnmt.blocks(8), "gnmt", "recurrent",
        "datasets/build/tensorflow_gnmt.py, 8 + 8 layers of 1024, attention, 100 + 100 steps, vocabulary 32000; batch 64; Adam",
    ),
    **{
        f"resnet-{depth}": Workload(
            partial(tensorflow_resnet.build, depth, batch), tensorflow_resnet.blocks(depth), "resnet", "convolutional",
            f"datasets/build/tensorflow_resnet.py, 224 x 224 x 3; batch {batch}; SGD with momentum",
        )
        for depth, batch in ((50, 32), (152, 128))
    },
    "nasnet-mobile": Workload(
        tensorflow_nasnet.build, tensorflow_nasnet.blocks(), "nasnet", "cell",
        "datasets/build/tensorflow_nasnet.py, NASNet-A 4 @ 1056, 224 x 224 x 3; batch 32; RMSProp",
    ),
    "vgg-16": Workload(
        tensorflow_vgg.build, tensorflow_vgg.blocks(), "vgg", "convolutional",
        "datasets/build/tensorflow_vgg.py, configuration D, 224 x 224 x 3; batch 32; SGD with momentum",
    ),
}  # fmt: skip


def graph(name: str) -> ComputationGraph:
    """The training step called `name`. Raises ValueError with the names that there are."""
    if name not in WORKLOADS:
        raise ValueError(f"workload: {name!r} is none of {', '.join(WORKLOADS)}")
    workload = WORKLOADS[name]
    with tf.Graph().as_default() as built:
        loss, train = workload.build()
    return read_step(built, [loss.name, train.name], name, workload.blocks)


def workload(name: str) -> TensorFlowStep:
    """The training step called `name`, to be run. Raises ValueError with the names that there are."""
    if name not in WORKLOADS:
        raise ValueError(f"workload: {name!r} is none of {', '.join(WORKLOADS)}")
    return TensorFlowStep(name, WORKLOADS[name].build, WORKLOADS[name].blocks)


def main(names: list[str]) -> None:
    """Builds and registers the workloads of these names."""
    for name in names or list(WORKLOADS):
        built, workload = graph(name), WORKLOADS[name]
        entry = manifest.add(
            built, family=workload.family, lineage=workload.lineage, split=splits.fixed(workload.lineage), mode="training",
            source=workload.source, licence="Apache-2.0", builder=f"python -m datasets.build_tensorflow {name}",
            builder_version=versions("tensorflow-cpu", source=workload.source),
        )  # fmt: skip
        print(f"{name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}")


if __name__ == "__main__":
    main(sys.argv[1:])
