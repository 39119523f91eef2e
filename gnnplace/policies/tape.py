"""The tape: the one place that draws decisions, adds exploration noise, and keeps log-probabilities and entropies.

A policy computes logits and asks; a tape answers by sampling, by argmax, or with what an earlier tape
recorded (replay). Replaying re-scores the *measured* choices under new weights, with the noise that was
added to them, so the update differentiates what was run (the public code of Mirhoseini et al., ICLR 2018, differentiates new samples).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Answer = Literal["sample", "argmax", "replay"]


@dataclass
class Decisions:
    """All answers of one name; an autoregressive policy asks once a step, and the steps become the second axis."""

    choices: list[Int[Tensor, "leading *shape"]] = field(default_factory=list)
    logits: list[Float[Tensor, "leading *shape options"]] = field(default_factory=list)  # masked, noise added
    noises: list[Float[Tensor, "leading *shape options"] | None] = field(default_factory=list)

    def choice(self) -> Int[Tensor, "leading *shape"]:
        """Every choice; those of several steps are stacked along axis 1."""
        return _stack(self.choices)

    def noise(self) -> Float[Tensor, "leading *shape options"] | None:
        return None if self.noises[0] is None else _stack([noise for noise in self.noises if noise is not None])

    def log_probability(self) -> Float[Tensor, "leading *shape"]:
        """The log-probability of each decision under the logits it was asked with."""
        logits = torch.log_softmax(_stack(self.logits), dim=-1)
        return logits.gather(-1, self.choice().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Float[Tensor, "leading *shape"]:
        """The entropy of each decision, in nats."""
        logits = torch.log_softmax(_stack(self.logits), dim=-1)
        return -(logits.exp() * logits.masked_fill(logits == -torch.inf, 0.0)).sum(-1)


class Tape:
    """Answers a policy's questions and records them by name, in the order in which they were asked.

    `generator` is of the CPU whatever the device of the logits, so that a seed means the same choices on all.
    `noise` is the standard deviation of Gaussian noise on every logit. A tape answers one episode of
    `samples` parallel placements; a question whose leading axis is a divisor of `samples` is shared.
    """

    def __init__(self, answer: Answer, samples: int, generator: torch.Generator | None = None, noise: float = 0.0) -> None:
        if answer == "sample" and generator is None:
            raise ValueError("a tape that samples needs a generator")
        self.answer, self.samples, self.generator, self.noise_std = answer, samples, generator, noise
        self.decisions: dict[str, Decisions] = {}
        self._recorded: Mapping[str, tuple[Tensor, Tensor | None]] = {}

    @classmethod
    def replaying(cls, tape: Tape) -> Tape:
        """A tape that gives the choices of `tape`, and its noise, to the same questions."""
        replay = cls("replay", tape.samples)
        replay._recorded = {name: (made.choice(), made.noise()) for name, made in tape.decisions.items()}
        return replay

    @classmethod
    def of(cls, choices: Mapping[str, Int[Tensor, "leading *shape"]], samples: int) -> Tape:
        """A tape that gives these choices: what imitation of a known placement replays."""
        replay = cls("replay", samples)
        replay._recorded = {name: (choice, None) for name, choice in choices.items()}
        return replay

    def given(self, name: str) -> Int[Tensor, "leading *shape"] | None:
        """The recorded answers to `name` when replaying, for one fused, teacher-forced pass; else None."""
        return self._recorded[name][0] if self.answer == "replay" else None

    def __call__(
        self,
        name: str,
        logits: Float[Tensor, "leading *shape options"],
        allowed: Bool[Tensor, "..."] | None = None,
    ) -> Int[Tensor, "leading *shape"]:
        """Answer one question: an option for each of `leading x shape`; options not `allowed` have probability 0."""
        if self.samples % logits.shape[0]:
            raise ValueError(f"{name}: {logits.shape[0]} answers cannot be shared by {self.samples} samples")
        made = self.decisions.setdefault(name, Decisions())
        recorded, noise = self._next(name, logits, len(made.choices))
        if noise is not None:
            logits = logits + noise
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        choice = self._draw(logits.detach()) if recorded is None else recorded
        made.choices.append(choice)
        made.logits.append(logits)
        made.noises.append(noise)
        return choice

    def _next(self, name: str, logits: Tensor, step: int) -> tuple[Tensor | None, Tensor | None]:
        if self.answer != "replay":
            return None, None if self.noise_std == 0 else self._noise(logits)
        choice, noise = self._recorded[name]
        if choice.numel() == logits.shape[:-1].numel():  # one question, or all of an episode's in one
            return choice.reshape(logits.shape[:-1]), None if noise is None else noise.reshape(logits.shape)
        return choice[:, step], None if noise is None else noise[:, step]

    def _noise(self, logits: Float[Tensor, "leading *shape options"]) -> Float[Tensor, "leading *shape options"]:
        return self.noise_std * torch.randn(logits.shape, generator=self.generator).to(logits.device)

    def _draw(self, logits: Float[Tensor, "leading *shape options"]) -> Int[Tensor, "leading *shape"]:
        if self.answer == "argmax":
            return logits.argmax(-1)
        cumulative = torch.softmax(logits, dim=-1).cumsum(-1)
        uniform = torch.rand(logits.shape[:-1], generator=self.generator).to(logits.device).unsqueeze(-1)
        choice = (cumulative <= uniform * cumulative[..., -1:]).sum(-1)
        return torch.where(choice < logits.shape[-1], choice, logits.argmax(-1))  # a uniform that rounds up to 1

    def log_probability(self) -> Float[Tensor, " samples"]:
        """The log-probability of each sample: the sum over all its decisions, shared ones included."""
        return self._per_sample([made.log_probability() for made in self.decisions.values()])

    def entropy(self) -> Float[Tensor, " samples"]:
        """The entropy of each sample in nats: the sum over its decisions, as with its log-probability."""
        return self._per_sample([made.entropy() for made in self.decisions.values()])

    @property
    def decisions_per_sample(self) -> int:
        """How many decisions make one sample."""
        return sum(choice[0].numel() for made in self.decisions.values() for choice in made.choices)

    def _per_sample(self, values: list[Tensor]) -> Float[Tensor, " samples"]:
        sums = [value.flatten(1).sum(1) if value.dim() > 1 else value for value in values]
        return torch.stack([total.repeat_interleave(self.samples // len(total)) for total in sums]).sum(0)


def _stack(steps: list[Tensor]) -> Tensor:
    return steps[0] if len(steps) == 1 else torch.stack(steps, dim=1)
