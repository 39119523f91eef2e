"""Networks whose maps and stages are swept: residuals, attention, recurrence, convolutions, ties, bare tensors, odd names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import gnnplace as gp


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.mlp = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), Block(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.mlp(x + self.out(mixed.transpose(1, 2).flatten(2)))


class Language(nn.Module):
    """Tokens and positions, blocks, and a head that may be tied."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.blocks, self.head = nn.Sequential(Attention(), Attention(), Attention()), nn.Linear(8, 20, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))))


class Patches(nn.Module):
    """Vision: a token and positions that the model itself holds."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks, self.head = nn.Conv2d(3, 8, 4, 4), nn.Sequential(Attention(), Attention()), nn.Linear(8, 5)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.zeros(1, 5, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.blocks(x)[:, 0])


class Scaled(nn.Module):
    """Blocks that hold a parameter and a buffer beside modules."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.zeros(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x) * self.scale) + self.shift


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.words, self.first, self.second, self.head = nn.Embedding(20, 8), kind(8, 8), kind(8, 8), nn.Linear(8, 20)

    def forward(self, ids: Tensor) -> Tensor:
        made, state = self.first(self.words(ids))
        return self.head(self.second(made, state)[0])


class Skips(nn.Module):
    """A small U-Net: what the first layers make is read by the last."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.down(x))
        deep = nn.functional.interpolate(torch.relu(self.deep(nn.functional.max_pool2d(x, 2))), scale_factor=2)
        return self.up(torch.cat([x, deep], 1))


class Towers(nn.Module):
    """Two towers that meet in a module that holds nothing."""

    class Product(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a * b

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(8, 4)
        self.product, self.head = Towers.Product(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.product(self.left(x), self.right(x)))


class Constant(nn.Module):
    """A tensor that is no buffer stays on the CPU: no GPU runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.shift = nn.Linear(8, 8), nn.Linear(8, 8), torch.ones(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x) + self.shift)


class Slashed(nn.ModuleDict):
    def __init__(self) -> None:
        super().__init__({"de/low": nn.Linear(8, 8), "de": nn.Linear(8, 8), "up": Block()})

    def forward(self, x: Tensor) -> Tensor:
        return self["up"](self["de"](self["de/low"](x)))


class Twice(nn.Module):
    """One module of two names, an unused one, an empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.again = nn.Linear(8, 8)
        self.middle, self.unused, self.pruned = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.again(self.middle(self.first(x))), self.pruned(x)], -1)


class Adapted(nn.Module):
    """A frozen linear layer beside one of low rank (LoRA)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(width, width).requires_grad_(False), nn.Linear(width, 2), nn.Linear(2, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Convolutions(nn.Module):
    """Graph convolutions: each layer reads the edges."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import GraphConv

        self.first, self.second, self.head = GraphConv(8, 8), GraphConv(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.head(self.second(torch.relu(self.first(x, edges)), edges))


def compiled() -> nn.Module:
    return nn.Sequential(torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Block()), backend="eager"), Block())


def of_transformers(kind: str, **sizes: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, kind)(getattr(transformers, kind.partition("For")[0].removesuffix("LMHeadModel") + "Config")(**sizes))

    return make


def x() -> tuple[Tensor, ...]:
    return (torch.zeros(4, 8),)


def sequence() -> tuple[Tensor, ...]:
    return (torch.zeros(4, 6, 8),)


def ids() -> tuple[Tensor, ...]:
    return (torch.zeros(4, 6, dtype=torch.long),)


def image() -> tuple[Tensor, ...]:
    return (torch.zeros(4, 3, 8, 8),)


SMALL = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "plain": (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 3)), x),
    "residual": (lambda: nn.Sequential(*(Block() for _ in range(4))), x),
    "attention": (lambda: nn.Sequential(*(Attention() for _ in range(3))), sequence),
    "language": (lambda: Language(tied=False), ids),
    "tied": (lambda: Language(tied=True), ids),
    "patches": (Patches, image),
    "scaled": (lambda: nn.Sequential(Scaled(), Scaled(), nn.Linear(8, 8)), x),
    "lstm": (lambda: Recurrent(nn.LSTM), ids),
    "gru": (lambda: Recurrent(nn.GRU), ids),
    "skips": (Skips, image),
    "towers": (Towers, x),
    "constant": (Constant, x),
    "slashed": (Slashed, x),
    "twice": (Twice, x),
    "compiled": (compiled, x),
    "norms": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4)), image),
    "encoder": (lambda: nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3))), sequence),
    "gpt2": (of_transformers("GPT2LMHeadModel", vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2), ids),
    "bert": (of_transformers("BertForMaskedLM", **SMALL, max_position_embeddings=8), ids),
    "llama": (of_transformers("LlamaForCausalLM", **SMALL, max_position_embeddings=8), ids),
}

CAUSAL = SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 8}
# beside these, for what runtimes keep together
MORE: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "adapted": (lambda: nn.Sequential(Adapted(), nn.ReLU(), Adapted(), nn.Linear(8, 3)), x),
    "graph": (Convolutions, lambda: (torch.zeros(6, 8), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))),
    "opt": (of_transformers("OPTForCausalLM", vocab_size=20, hidden_size=8, ffn_dim=16, num_hidden_layers=2, num_attention_heads=2,
                            max_position_embeddings=16, word_embed_proj_dim=8), ids),
    "mistral": (of_transformers("MistralForCausalLM", **CAUSAL), ids),
    "qwen2": (of_transformers("Qwen2ForCausalLM", **CAUSAL), ids),
    "roberta": (of_transformers("RobertaForMaskedLM", **SMALL, max_position_embeddings=16), ids),
    "distilbert": (of_transformers("DistilBertForMaskedLM", vocab_size=20, dim=8, n_layers=2, n_heads=2, hidden_dim=16,
                                   max_position_embeddings=8), ids),
    "vit": (of_transformers("ViTForImageClassification", hidden_size=8, intermediate_size=16, num_hidden_layers=2,
                            num_attention_heads=2, image_size=8, patch_size=4), image),
    "resnet": (of_transformers("ResNetForImageClassification", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), image),
    "convnext": (of_transformers("ConvNextForImageClassification", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), image),
}  # fmt: skip
EVERY = NETWORKS | MORE


def step(name: str, trains: bool) -> gp.TorchStep | gp.TorchInference:
    """A training step of a network, whose loss is a sum of squares, or its inference."""
    make, inputs = EVERY[name]
    return gp.TorchStep(make(), squares, inputs()) if trains else gp.TorchInference(make(), inputs())


def squares(module: nn.Module, *given: Tensor) -> Tensor:
    made = module(*given)
    return (made if isinstance(made, Tensor) else made[0]).square().mean()
