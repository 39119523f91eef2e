"""The metadata of a checkpoint, of each version: strict documents, as of all our formats."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gnnplace.cluster import MAX_DEVICES
from gnnplace.formats import strict_json
from gnnplace.formats.references import Text
from gnnplace.formats.strict_json import Document
from gnnplace.graph import MAX_OPS
from gnnplace.placement import Schedule
from gnnplace.training.update.best import Origin

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
Named = Annotated[list[Text], Field(min_length=2, max_length=2)]  # a name, and a checksum


class TensorDocument(Document):
    """A tensor, by its name in the file."""

    tensor: Annotated[str, Field(alias="$tensor", max_length=10_000)]


Steps = list[dict[Text, TensorDocument]]


class BestDocument(Document):
    """The best placement of a problem; in version 2 its columns are not named here."""

    schedule: Schedule
    step_time_ns: Annotated[int, Field(ge=0, le=2**63 - 1)]
    origin: Origin
    device: TensorDocument | None = None
    priority: TensorDocument | None = None
    fusion: TensorDocument | None = None
    choices: Steps | None = None


class OwnDocument(Document):
    """The learner's part: description, number of updates, and best placements, which a policy alone doesn't have."""

    description: dict[str, Any]
    updates_done: Count
    best: list[BestDocument | None] | None = None


class TreeDocument(Document):
    """The tree of a checkpoint of version 3: the learner's part, and Lightning's (checked by `lightning_tree`)."""

    model_config = ConfigDict(extra="allow")

    gnnplace: OwnDocument
    state_dict: dict[str, Any] = Field(default_factory=dict)
    lightning: Annotated[
        str, Field(alias="pytorch-lightning_version", pattern=r"^\d{1,4}\.\d{1,4}\.\d{1,4}\S{0,40}$")
    ] = "2.0.0"
    epoch: Count = 0
    global_step: Count = 0


class Version2(OwnDocument):
    """The metadata of version 2."""

    format: Literal["gnnplace.checkpoint"] = "gnnplace.checkpoint"
    version: Literal[2] = 2


class Version3(Document):
    """The metadata of version 3."""

    format: Literal["gnnplace.checkpoint"] = "gnnplace.checkpoint"
    version: Literal[3] = 3
    tree: TreeDocument


class ShapeDocument(Document):
    """`policies.protocol.PolicyShape`."""

    devices: Annotated[int, Field(ge=0, le=MAX_DEVICES)]
    kinds: Annotated[list[Text], Field(max_length=100_000)]
    groups: Annotated[int, Field(ge=0, le=MAX_OPS)] = 0


class TrainingDocument(Document):
    """The knobs of training that a policy depends on."""

    model_config = ConfigDict(extra="allow")

    groupings: Number


class ConfigDocument(Document):
    """The part of a configuration that a policy depends on.

    The policy's knobs are checked as those of a configuration file.
    """

    model_config = ConfigDict(extra="allow")

    policy: dict[str, Any]
    training: TrainingDocument


class ProblemDocument(Document):
    """The graph and the cluster of a problem, by name and checksum."""

    graph: Named
    cluster: Named


class RangeDocument(Document):
    """The fewest and the most ops and devices of the problems."""

    ops: Annotated[list[Number], Field(min_length=2, max_length=2)]
    devices: Annotated[list[Number], Field(min_length=2, max_length=2)]


class DescriptionDocument(Document):
    """The description of a run (`description.document`)."""

    config: ConfigDocument
    shape: ShapeDocument
    problems: list[ProblemDocument]
    range: RangeDocument | None = None


OF_VERSION: dict[int, type[Version2] | type[Version3]] = {2: Version2, 3: Version3}


def own(document: dict[str, Any]) -> OwnDocument:
    """The learner's part of a checkpoint's metadata, of any version.

    Raises ValueError (one line) if it is no such document.
    """
    version = document.get("version")
    if document.get("format") != "gnnplace.checkpoint":
        raise ValueError(f"format {strict_json.shown(document.get('format'))} is not 'gnnplace.checkpoint'")
    if isinstance(version, bool) or not isinstance(version, int) or version not in OF_VERSION:
        versions = " and ".join(map(str, OF_VERSION))
        raise ValueError(
            f"version {strict_json.shown(version)} of gnnplace.checkpoint is not known; this reader knows {versions}"
        )
    content = strict_json.check(document, OF_VERSION[version])
    return content.tree.gnnplace if isinstance(content, Version3) else content


def described(description: dict[str, Any]) -> DescriptionDocument:
    """A description as a document. Raises ValueError (one line) if it is none."""
    return strict_json.validate(description, DescriptionDocument)
