"""More PyTorch recommenders of the corpus, and recommenders that answer requests.

SASRec recommends, but what is placed is a causal transformer on one small table of items: its lineage is the transformer's, so that none
of its siblings is learned on while it is proved on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datasets.build import dcn, din, neumf, sasrec, torch_models, wide_and_deep
from datasets.build import two_tower as two_tower_model
from datasets.build.losses import binary_loss, own_loss
from datasets.build.torch_models import clicks, columns
from datasets.build.torch_workload import Workload, without_labels
from gnnplace.frontends.torch.step import TorchInference, TorchStep


def deep_and_cross(batch: int = 4096) -> TorchStep:
    """DCN-V2 on Criteo: will this advertisement be clicked?"""
    return TorchStep(dcn.DCN(), binary_loss, (torch.rand(batch, dcn.NUM_DENSE), columns(dcn.ROWS, batch), clicks(batch)))


def wide_deep(batch: int = 4096) -> TorchStep:
    """Wide & Deep on Criteo's fields."""
    crossed = columns([wide_and_deep.CROSS_ROWS] * wide_and_deep.CROSSES, batch)
    return TorchStep(wide_and_deep.WideAndDeep(), binary_loss, (columns(wide_and_deep.ROWS, batch), crossed, clicks(batch)))


def neural_factorisation(batch: int = 65_536, sizes: neumf.Sizes = neumf.FULL) -> TorchStep:
    """NeuMF on MovieLens-20M: has this user seen this film?"""
    users, items = columns([sizes.users, sizes.items], batch).unbind(dim=1)
    return TorchStep(neumf.NeuMF(sizes), binary_loss, (users, items, clicks(batch)))


def deep_interest(batch: int = 1024, sizes: din.Sizes = din.FULL) -> TorchStep:
    """DIN on Amazon's electronics: what next, after these goods? Plain SGD, sparse for the tables."""
    candidate = columns([sizes.goods, sizes.categories], batch).unbind(dim=1)
    history = (torch.randint(below, (batch, sizes.history)) for below in (sizes.goods, sizes.categories))
    return TorchStep(din.DIN(sizes), binary_loss, (*candidate, *history, torch.ones(batch, sizes.history), clicks(batch)), "sgd")


def self_attentive(batch: int = 128, sizes: sasrec.Sizes = sasrec.FULL) -> TorchStep:
    """SASRec on MovieLens-1M: which film comes next?"""
    return TorchStep(sasrec.SASRec(sizes), own_loss, _films(batch, sizes))


def two_tower_requests(users: int = 16, items: int = 4096) -> TorchInference:
    """The two towers score the same candidates for several users."""
    module, (user, item) = two_tower_model.TwoTower(two_tower_model.FULL), two_tower_model.FULL.num_features
    rows = two_tower_model.FULL.rows
    return TorchInference(module, (torch.randint(rows, (users, user)), torch.randint(rows, (items, item))))


WORKLOADS: dict[str, Workload] = {
    "dcn-v2": Workload(
        deep_and_cross, "dcn", "recommender",
        "datasets/build/dcn.py, 26 fields of width 39, 2 cross layers, deep 768-768; batch 4096; Adam, dense for the tables",
    ),
    "wide-and-deep": Workload(
        wide_deep, "wide-and-deep", "recommender",
        "datasets/build/wide_and_deep.py, 39 fields of width 32, 15 crosses, deep 1024-512-256; batch 4096; Adam, dense for the tables",
    ),
    "neumf": Workload(
        neural_factorisation, "neumf", "recommender",
        "datasets/build/neumf.py, MovieLens-20M, 64 factors, perceptron 256-256-128-64; batch 65536; Adam, dense for the tables",
    ),
    "din": Workload(
        deep_interest, "din", "recommender",
        "datasets/build/din.py, Amazon electronics, width 128, histories of 100; batch 1024; SGD, sparse for the tables",
    ),
    "sasrec": Workload(
        self_attentive, "sasrec", "transformer",
        "datasets/build/sasrec.py, MovieLens-1M, 2 blocks of width 50, length 200; batch 128; Adam",
    ),
    "two-tower-inference": torch_models.WORKLOADS["two-tower"].inference(
        two_tower_requests, "datasets/build/two_tower.py; 16 users, 4096 items; forward"
    ),
    "deepfm-inference": torch_models.WORKLOADS["deepfm"].inference(
        lambda: without_labels(torch_models.deep_fm(128)),
        "datasets/build/deepfm.py, 39 fields of width 16, deep 400-400-400; batch 128; forward",
    ),
}  # fmt: skip


def _films(batch: int, sizes: sasrec.Sizes) -> tuple[Tensor, ...]:
    """Films seen, the next one of each, and others."""
    return tuple(torch.randint(1, sizes.items + 1, (batch, sizes.length)) for _ in range(3))
