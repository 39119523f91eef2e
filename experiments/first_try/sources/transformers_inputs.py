"""Inputs of a model of transformers by the names in its signature: all that it can take, then less and less."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from experiments.first_try.cases import NotRunnableError

BATCH, TOKENS, FRAMES = 2, 16, 8
Maker = Callable[[Any], list[Tensor]]


def inputs_of(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Candidates of named inputs: those without a default, or all of the main ones; every shape that a name may have."""
    parameters = inspect.signature(model.forward).parameters
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    unknown = [name for name in required if name not in _MAKERS]
    if unknown:
        raise NotRunnableError(f"needs {', '.join(unknown)}, of which the sweep has no example")
    main = [name for name in _MAIN if name in parameters]
    first = [name for name in (getattr(model, "main_input_name", None), "input_ids") if name in main][:1]
    wanted = dict.fromkeys(
        tuple(dict.fromkeys((*required, *names)))
        for names in (main, [*first, *_decoder(parameters)], first, [], [*main, *_added(parameters)])
    )
    for names in wanted:
        if names:
            yield from _combinations(model, names)


def _decoder(parameters: Any) -> list[str]:
    return [name for name in ("decoder_input_ids",) if name in parameters]


def _added(parameters: Any) -> list[str]:
    return [name for name in ("attention_mask", "bbox", "token_type_ids") if name in parameters]


def _combinations(model: nn.Module, names: tuple[str, ...]) -> Iterator[dict[str, Tensor]]:
    """One for each shape that an input may have; the others have their first."""
    generator = torch.Generator().manual_seed(0)
    made = {name: _MAKERS[name](_Sizes(model, generator)) for name in names}
    made = {name: shapes for name, shapes in made.items() if shapes}
    most = max(map(len, made.values()), default=0)
    for number in range(most):
        yield {name: shapes[min(number, len(shapes) - 1)] for name, shapes in made.items()}


class _Sizes:
    """The sizes that a model's configuration gives."""

    def __init__(self, model: nn.Module, generator: torch.Generator) -> None:
        self.config, self.generator = model.config, generator

    def get(self, *names: str) -> Any:
        """The first of these fields that the configuration, or one in it, has."""
        for name in names:
            for config in self._configs():
                value = getattr(config, name, None)
                if value is not None and not callable(value):
                    return value
        return None

    def number(self, default: int, *names: str) -> int:
        value = self.get(*names)
        value = value[0] if isinstance(value, list | tuple) and value else value
        return value if type(value) is int else default

    def tokens(self, *shape: int, most: int | None = None) -> Tensor:
        words = most or self.number(100, "vocab_size")
        return torch.randint(3, max(4, min(words, 900)), shape, generator=self.generator)

    def floats(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def image(self) -> tuple[int, int]:
        size = self.get("image_size", "img_size", "input_size", "image_resolution")
        if isinstance(size, dict):
            size = [size.get("height", 224), size.get("width", 224)]
        if isinstance(size, list | tuple) and len(size) >= 2 and all(type(part) is int for part in size[-2:]):
            return size[-2], size[-1]
        side = size if type(size) is int else 64
        return side, side

    def _configs(self) -> Iterator[Any]:
        pending = [self.config]
        while pending:
            config = pending.pop(0)
            yield config
            pending += [value for value in vars(config).values() if hasattr(value, "to_dict") and hasattr(value, "model_type")]


def _pixels(sizes: _Sizes) -> list[Tensor]:
    channels = sizes.number(3, "num_channels", "in_channels", "in_chans")
    height, width = sizes.image()
    frames = sizes.number(FRAMES, "num_frames", "frames")
    shapes = [(BATCH, channels, height, width), (BATCH, frames, channels, height, width)]
    shapes += [(BATCH, channels, side, side) for side in (64, 224, 384) if side != height]
    patch = sizes.number(16, "patch_size")
    temporal = sizes.number(1, "temporal_patch_size")
    shapes += [(BATCH, frames, channels, 224, 224), (64, channels * temporal * patch * patch), (BATCH, 16, channels * patch * patch)]
    return [sizes.floats(*shape) for shape in shapes]


def _features(sizes: _Sizes) -> list[Tensor]:
    mels = sizes.number(80, "num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", "n_mels", "input_size", "mel_bins")
    positions = 2 * sizes.number(1500, "max_source_positions")
    shapes = [
        (BATCH, mels, positions),
        (BATCH, 64, mels),
        (BATCH, mels, 64),
        (BATCH, 1, 1001, mels),
        (BATCH, 64, 160),
        (BATCH, 64, 80),
        (BATCH, 64, 320),
    ]
    return [sizes.floats(*shape) for shape in shapes]


def _values(sizes: _Sizes) -> list[Tensor]:
    mels, length = sizes.number(128, "num_mel_bins"), sizes.number(1024, "max_length")
    channels = sizes.number(1, "audio_channels")
    shapes = [(BATCH, 16000), (BATCH, length, mels), (BATCH, channels, 16000), (BATCH, 1, 16000), (BATCH, 64, 80)]
    return [sizes.floats(*shape) for shape in shapes] + [sizes.tokens(BATCH, TOKENS)]


def _boxes(sizes: _Sizes) -> list[Tensor]:
    corner = torch.randint(0, 400, (BATCH, TOKENS, 2), generator=sizes.generator)
    return [torch.cat([corner, corner + 100], dim=-1)]


def _past_values(sizes: _Sizes) -> list[Tensor]:
    length = sizes.number(0, "context_length", "prediction_length") + max([*(sizes.get("lags_sequence") or [0])])
    channels = sizes.number(1, "num_input_channels", "input_size")
    return [sizes.floats(BATCH, length or 64, channels), sizes.floats(BATCH, length or 64)]


def _states(sizes: _Sizes) -> list[Tensor]:
    patch = sizes.number(3, "num_channels", "in_channels", "in_chans") * sizes.number(1, "temporal_patch_size")
    pixels = patch * sizes.number(16, "patch_size") ** 2
    return [sizes.floats(BATCH, TOKENS, sizes.number(64, "hidden_size", "d_model", "n_embd", "dim")), sizes.floats(64, pixels)]


_MAIN = (
    "input_ids", "pixel_values", "input_features", "input_values", "decoder_input_ids", "pixel_values_videos",
    "past_values", "hidden_states",
)  # fmt: skip
_MAKERS: dict[str, Maker] = {
    "input_ids": lambda sizes: [sizes.tokens(BATCH, TOKENS)],
    "decoder_input_ids": lambda sizes: [sizes.tokens(BATCH, TOKENS // 2)],
    "attention_mask": lambda sizes: [torch.ones(BATCH, TOKENS, dtype=torch.long)],
    "token_type_ids": lambda sizes: [torch.zeros(BATCH, TOKENS, dtype=torch.long)],
    "pixel_values": _pixels,
    "pixel_values_videos": lambda sizes: [sizes.floats(BATCH, FRAMES, 3, *sizes.image())],
    "pixel_mask": lambda sizes: [torch.ones(BATCH, *sizes.image(), dtype=torch.long)],
    "input_features": _features,
    "input_values": _values,
    "bbox": _boxes,
    "past_values": _past_values,
    "past_time_features": lambda sizes: [torch.zeros(BATCH, _past_values(sizes)[0].shape[1], sizes.number(1, "num_time_features"))],
    "past_observed_mask": lambda sizes: [torch.ones_like(_past_values(sizes)[0][..., 0])],
    "hidden_states": _states,
    "inputs_embeds": _states,
    "grid_thw": lambda sizes: [torch.tensor([[1, 8, 8]])],
}
