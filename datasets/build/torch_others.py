"""PyTorch workloads that are neither image classifiers of convolutions nor language models: audio, graphs, points, mixers, codes."""

from __future__ import annotations

import torch
from torch import Tensor

from datasets.build import gat, graphsage, pointnet, vq_vae
from datasets.build.losses import binary_loss, class_loss, own_loss
from datasets.build.mlp_mixer import MLPMixer
from datasets.build.torch_vision import classifier
from datasets.build.torch_workload import Workload
from datasets.build.wavenet import CLASSES, LARGE, SMALL, WaveNet
from datasets.build.wavenet import Sizes as WaveNetSizes
from gnnplace.frontends.torch.step import TorchStep


def wavenet(sizes: WaveNetSizes, batch: int = 8, samples: int = 6144) -> TorchStep:
    """WaveNet predicting each next sample of a segment of raw audio."""
    inputs = (2 * torch.rand(batch, 1, samples) - 1, torch.randint(CLASSES, (batch * samples,)))
    return TorchStep(WaveNet(sizes), class_loss, inputs)


def graph_sage(sizes: graphsage.Sizes = graphsage.FULL) -> TorchStep:
    """The classes of a minibatch of nodes, by sampled neighbours."""
    edges: list[Tensor] = []
    for fanout, given, kept in zip(sizes.fanouts, sizes.nodes, sizes.nodes[1:], strict=False):
        edges += [torch.randint(given, (kept * fanout,)), torch.arange(kept).repeat_interleave(fanout)]
    inputs = (torch.rand(sizes.nodes[0], sizes.features), *edges, torch.randint(sizes.classes, (sizes.batch,)))
    return TorchStep(graphsage.GraphSAGE(sizes), class_loss, inputs)


def graph_attention(sizes: gat.Sizes = gat.FULL) -> TorchStep:
    """Which of 121 functions has each protein?"""
    loops = torch.arange(sizes.nodes)
    source, target = (torch.cat([torch.randint(sizes.nodes, (sizes.edges,)), loops]) for _ in range(2))
    labels = torch.randint(2, (sizes.nodes, sizes.classes)).float()
    return TorchStep(gat.GAT(sizes), binary_loss, (torch.rand(sizes.nodes, sizes.features), source, target, labels))


def point_net(batch: int = 32, points: int = 1024) -> TorchStep:
    """The class of a cloud of points."""
    inputs = (torch.rand(batch, 3, points), torch.randint(pointnet.CLASSES, (batch,)))
    return TorchStep(pointnet.PointNet(), pointnet.loss, inputs)


def coded_images(batch: int = 128, size: int = 128, sizes: vq_vae.Sizes = vq_vae.FULL) -> TorchStep:
    """Images from their codes; the module returns its loss itself."""
    return TorchStep(vq_vae.VQVAE(sizes), own_loss, (torch.rand(batch, 3, size, size),))


WORKLOADS: dict[str, Workload] = {
    "wavenet-2x18": Workload(
        lambda: wavenet(SMALL), "wavenet", "wavenet",
        "datasets/build/wavenet.py, 2 stacks, 18 layers, 512 channels; batch 8, segments of 6144 samples; Adam",
    ),
    "wavenet-4x36": Workload(
        lambda: wavenet(LARGE), "wavenet", "wavenet",
        "datasets/build/wavenet.py, 4 stacks, 36 layers, 512 channels; batch 8, segments of 6144 samples; Adam",
    ),
    "graphsage": Workload(
        graph_sage, "graphsage", "graph",
        "datasets/build/graphsage.py, mean aggregator, 25 and 10 neighbours, features of Reddit; batch 512; Adam",
    ),
    "gat": Workload(
        graph_attention, "gat", "graph",
        "datasets/build/gat.py, 3 layers of 4, 4 and 6 heads on 4,746 nodes, 136,454 edges and self-loops; Adam",
    ),
    "mlp-mixer-b16": Workload(
        lambda: classifier(MLPMixer(), 64), "mlp-mixer", "mixer",
        "datasets/build/mlp_mixer.py, B/16, 59.9 M parameters, 224 x 224 images; batch 64; Adam",
    ),
    "pointnet": Workload(
        point_net, "pointnet", "point-cloud",
        "datasets/build/pointnet.py, both transforms, 1024 points; batch 32; Adam",
    ),
    "vq-vae": Workload(
        coded_images, "vq-vae", "autoencoder",
        "datasets/build/vq_vae.py, 256 units, 512 codes of 64, 128 x 128 images; batch 128; Adam",
    ),
}  # fmt: skip
