"""The tape draws decisions, adds exploration noise, and keeps log-probabilities and entropies; nothing else does.

A policy computes logits and asks; a tape answers by sampling, by argmax, or with the answers of an earlier tape
(replay). Replaying re-scores the *measured* choices under new weights, with the noise that was added to them, so the
update differentiates the samples that ran (the public code of Mirhoseini et al., ICLR 2018, differentiates new
samples).

An episode has steps, and each decision belongs to one: `next_step` begins the next. Steps may ask for different numbers
of decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Answer = Literal["sample", "argmax", "replay"]
# largest difference of the logits of equal options, such as equal devices, between processors: argmax takes the first
ROUNDING = 1e-5


class Record(NamedTuple):
    """The choices of one name in one step, the noise that their logits had, and whether samples shared them."""

    choice: Int[Tensor, "leading *shape"]
    noise: Float[Tensor, "leading *shape options"] | None = None
    shared: bool | None = None


Recorded = Mapping[str, Record]  # by name


@dataclass
class Decisions:
    """All answers of one name in one step.

    An autoregressive policy asks its questions one after another; they are stacked as the second axis. `shared`:
    whether several samples have the same.
    """

    shared: bool = False
    choices: list[Int[Tensor, "leading *shape"]] = field(default_factory=list)
    logits: list[Float[Tensor, "leading *shape options"]] = field(default_factory=list)  # masked, noise added
    noises: list[Float[Tensor, "leading *shape options"] | None] = field(default_factory=list)

    def choice(self) -> Int[Tensor, "leading *shape"]:
        """All choices; several questions are stacked along axis 1."""
        return _stack(self.choices)

    def noise(self) -> Float[Tensor, "leading *shape options"] | None:
        return None if self.noises[0] is None else _stack([noise for noise in self.noises if noise is not None])

    def log_probabilities(self) -> Float[Tensor, "leading *shape options"]:
        """The log-probability of every option of each decision, under the logits it was asked with."""
        return torch.log_softmax(_stack(self.logits), dim=-1)

    def log_probability(self) -> Float[Tensor, "leading *shape"]:
        """The log-probability of the option that each decision chose."""
        logits = self.log_probabilities()
        return logits.gather(-1, self.choice().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Float[Tensor, "leading *shape"]:
        """The entropy of each decision, in nats."""
        logits = self.log_probabilities()
        return -(logits.exp() * logits.masked_fill(logits == -torch.inf, 0.0)).sum(-1)


class Share(NamedTuple):
    """The part of an update's samples that one process draws: number `rank` of `processes` equal parts.

    A shared question has `groupings` rows over all processes. A sample's draws are the same as with a single process.
    """

    rank: int = 0
    processes: int = 1
    groupings: int = 1

    def rows(self, leading: int, samples: int) -> tuple[int, slice]:
        """The number of rows over all processes, and the rows of this one.

        The question has `leading` rows for this process's `samples` samples.
        """
        rows = leading * self.processes if leading == samples else max(self.groupings, leading)
        first = self.rank * rows // self.processes
        return rows, slice(first, first + leading)


class Tape:
    """Answers a policy's questions and records them by step and name, in the order in which they were asked.

    `generator` is of the CPU whatever the device of the logits, so that a seed means the same choices on all. `noise`
    is the largest amplitude of the exploration noise on every logit (Gaussian, of half that standard deviation, cut off
    there). A tape answers one episode of `samples` parallel placements; a question whose leading axis is a divisor of
    `samples` is shared. The questions of `given` have those answers in the first step, without noise: groups that are
    known, say, while devices are sampled.
    """

    def __init__(
        self,
        answer: Answer,
        samples: int,
        generator: torch.Generator | None = None,
        noise: float = 0.0,
        share: Share | None = None,
        given: Mapping[str, Int[Tensor, "leading *shape"]] | None = None,
    ) -> None:
        if answer == "sample" and generator is None:
            raise ValueError("a tape that samples needs a generator")
        self.answer, self.samples, self.generator, self.largest_noise, self.share = (
            answer,
            samples,
            generator,
            noise,
            share or Share(),
        )
        self.steps: list[dict[str, Decisions]] = [{}]
        self._recorded: list[Recorded] = [{name: Record(choice) for name, choice in (given or {}).items()}]

    @classmethod
    def replaying(cls, tape: Tape, rows: slice | None = None) -> Tape:
        """A tape that answers with the choices of `tape`, and its noise; only those of the samples `rows` if given."""
        first, last, _ = (rows or slice(None)).indices(tape.samples)
        replay = cls("replay", last - first)

        def part(value: Tensor) -> Tensor:
            low, high = first * len(value) // tape.samples, (last * len(value) - 1) // tape.samples
            if high > low and (first * len(value) % tape.samples or last * len(value) % tape.samples):
                raise ValueError(f"samples {first} to {last - 1} of {tape.samples} cut a choice that others share")
            return value[low : high + 1]

        def recorded(decisions: Decisions) -> Record:
            noise = decisions.noise()
            return Record(part(decisions.choice()), None if noise is None else part(noise), decisions.shared)

        replay._recorded = [{name: recorded(decisions) for name, decisions in step.items()} for step in tape.steps]
        return replay

    @classmethod
    def of(cls, choices: Mapping[str, Int[Tensor, "leading *shape"]], samples: int) -> Tape:
        """A tape that answers with these choices, which imitation of a placement needs, and no other question."""
        return cls("replay", samples, given=choices)

    @classmethod
    def recorded(cls, steps: Sequence[Mapping[str, Int[Tensor, "1 ..."]]], then: Answer = "replay") -> Tape:
        """A tape that answers with one sample's choices, step by step; other questions are answered as `then` says."""
        replay = cls(then, 1)
        replay._recorded = [{name: Record(choice) for name, choice in step.items()} for step in steps]
        return replay

    def choices(self, sample: int) -> list[dict[str, Int[Tensor, "1 *shape"]]]:
        """The choices of one sample in every step, which `recorded` replays."""
        return [
            {
                name: (rows := decisions.choice())[(at := sample * len(rows) // self.samples) : at + 1].cpu()
                for name, decisions in step.items()
            }
            for step in self.steps
        ]

    def next_step(self) -> None:
        """Begins the next step of the episode."""
        self.steps.append({})

    def given(self, name: str) -> Int[Tensor, "leading *shape"] | None:
        """The answers to `name` if they are recorded, for one teacher-forced pass; else None."""
        recorded = self._present().get(name)
        return None if recorded is None else recorded.choice

    def __call__(
        self,
        name: str,
        logits: Float[Tensor, "leading *shape options"],
        allowed: Bool[Tensor, "..."] | None = None,
    ) -> Int[Tensor, "leading *shape"]:
        """Answers one question: an option for each of `leading x shape`.

        Options that are not `allowed` have probability 0.
        """
        if self.samples % logits.shape[0]:
            raise ValueError(f"{name}: {logits.shape[0]} answers cannot be shared by {self.samples} samples")
        decisions = self.steps[-1].setdefault(name, Decisions(self._shared(name, len(logits))))
        recorded, noise = self._next(name, logits, len(decisions.choices))
        if noise is not None:
            logits = logits + noise
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        choice = self._draw(logits.detach()) if recorded is None else recorded
        decisions.choices.append(choice)
        decisions.logits.append(logits)
        decisions.noises.append(noise)
        return choice

    def _present(self) -> Recorded:
        """The recorded decisions of the present step."""
        number = len(self.steps) - 1
        return self._recorded[number] if number < len(self._recorded) else {}

    def _shared(self, name: str, leading: int) -> bool:
        """Whether samples share the answers to a question with so many rows; in a replay, whether they shared them."""
        recorded = self._present().get(name)
        return leading < self.samples if recorded is None or recorded.shared is None else recorded.shared

    def _next(self, name: str, logits: Tensor, question: int) -> tuple[Tensor | None, Tensor | None]:
        recorded = self._present().get(name)
        if recorded is None:
            assert self.answer != "replay", f"{name}: nothing was recorded of it"
            return None, None if self.largest_noise == 0 else self._noise(logits)
        choice, noise, _ = recorded
        if choice.numel() == logits.shape[:-1].numel():  # one question, or all of a step's in one
            return choice.reshape(logits.shape[:-1]), None if noise is None else noise.reshape(logits.shape)
        return choice[:, question], None if noise is None else noise[:, question]

    def _noise(self, logits: Float[Tensor, "leading *shape options"]) -> Float[Tensor, "leading *shape options"]:
        noise = 0.5 * self.largest_noise * self._random(torch.randn, logits.shape)
        return noise.clamp(-self.largest_noise, self.largest_noise).to(logits.device)

    def _draw(self, logits: Float[Tensor, "leading *shape options"]) -> Int[Tensor, "leading *shape"]:
        best = logits.amax(-1, keepdim=True)
        if not best.isfinite().all():
            raise ValueError("policy: its logits are not finite: its weights are damaged, or its training diverged")
        if self.answer == "argmax":
            return (logits >= best - ROUNDING).byte().argmax(-1)
        cumulative = torch.softmax(logits, dim=-1).cumsum(-1)
        uniform = self._random(torch.rand, logits.shape[:-1]).to(logits.device).unsqueeze(-1)
        choice = (cumulative <= uniform * cumulative[..., -1:]).sum(-1)
        return torch.where(choice < logits.shape[-1], choice, logits.argmax(-1))  # a uniform that rounds up to 1

    def _random(self, draw: Callable[..., Tensor], shape: torch.Size) -> Tensor:
        """Draws the rows of all processes and keeps those of this one."""
        leading, rows = self.share.rows(shape[0], self.samples)
        return draw((leading, *shape[1:]), generator=self.generator)[rows]

    def log_probability(self) -> Float[Tensor, " samples"]:
        """The log-probability of each sample: the sum over all its decisions, shared ones included."""
        return self.by_step(Decisions.log_probability).sum(0)

    def entropy(self) -> Float[Tensor, " samples"]:
        """The entropy of each sample in nats: the sum over its decisions, as with its log-probability."""
        return self.by_step(Decisions.entropy).sum(0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all decisions, in the order in which they were first asked."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step))

    def mean_entropy(self, names: Sequence[str] = ()) -> float:
        """The mean entropy of a decision in nats; of `names` alone if given."""
        number = sum(
            _number(decisions) for step in self.steps for name, decisions in step.items() if not names or name in names
        )
        return float(self.by_step(Decisions.entropy, names).sum(0).detach().mean()) / max(1, number)

    def by_step(
        self, value: Callable[[Decisions], Tensor], names: Sequence[str] = (), shared: bool | None = None
    ) -> Float[Tensor, "steps samples"]:
        """A value of decisions, such as `Decisions.entropy`, summed over each step.

        Of `names` alone if given; of decisions that several samples share, or of the others, if `shared` says so.
        """
        chosen = [
            {
                name: decisions
                for name, decisions in step.items()
                if (not names or name in names) and shared in (None, decisions.shared)
            }
            for step in self.steps
        ]
        return torch.stack([self._by_sample(step, value).sum(1) for step in chosen])

    def by_decision(self, value: Callable[[Decisions], Tensor]) -> Float[Tensor, "samples decisions"]:
        """A value of every decision, in the order of the steps."""
        return torch.cat([self._by_sample(step, value) for step in self.steps], dim=1)

    def decisions_by_step(self) -> tuple[int, ...]:
        """The number of decisions of a sample in each step."""
        return tuple(sum(_number(decisions) for decisions in step.values()) for step in self.steps)

    def shared_by_step(self) -> tuple[Bool[Tensor, " decisions"], ...]:
        """Of each step's decisions whether several samples share them."""
        return tuple(
            torch.tensor([decisions.shared for decisions in step.values()], dtype=torch.bool)
            .repeat_interleave(torch.tensor([_number(decisions) for decisions in step.values()], dtype=torch.long))
            .to(self._device)
            for step in self.steps
        )

    @property
    def _device(self) -> torch.device:
        """The device of the decisions."""
        return next(
            (decisions.logits[0].device for step in self.steps for decisions in step.values()), torch.device("cpu")
        )

    def _by_sample(
        self, step: Mapping[str, Decisions], value: Callable[[Decisions], Tensor]
    ) -> Float[Tensor, "samples decisions"]:
        if not step:
            return torch.zeros(self.samples, 0, device=self._device)
        values = [value(decisions) for decisions in step.values()]
        return torch.cat(
            [rows.reshape(len(rows), -1).repeat_interleave(self.samples // len(rows), 0) for rows in values], dim=1
        )


def _number(decisions: Decisions) -> int:
    """How many decisions a sample has in them."""
    return sum(choice[0].numel() for choice in decisions.choices)


def _stack(questions: list[Tensor]) -> Tensor:
    return questions[0] if len(questions) == 1 else torch.stack(questions, dim=1)
