"""Runs the segments of a model one after another, each on its device; written by `gnnplace export --to onnxruntime`.

chain = Chain()
outputs = chain.run({"x": x})  # by name
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime


class Chain:
    """A session for each segment.

    `provider`, e.g. "CPUExecutionProvider", replaces the providers of the manifest; `options` are those of sessions.
    """

    def __init__(
        self,
        folder: str | Path = Path(__file__).parent,
        provider: str | None = None,
        options: onnxruntime.SessionOptions | None = None,
    ) -> None:
        self.options = options
        self.manifest = json.loads((Path(folder) / "manifest.json").read_text())
        self.sessions = [self._session(Path(folder), segment, provider) for segment in self.manifest["segments"]]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of the model by name, given its inputs by name."""
        values = dict(feeds)
        for segment, session in zip(self.manifest["segments"], self.sessions, strict=True):
            outputs = session.run(segment["outputs"], {name: values[name] for name in segment["inputs"]})
            values.update(zip(segment["outputs"], outputs, strict=True))
        return {name: values[name] for name in self.manifest["outputs"]}

    def _session(self, folder: Path, segment: Mapping[str, Any], provider: str | None) -> onnxruntime.InferenceSession:
        """The session of a segment. Raises RuntimeError if onnxruntime lacks its provider."""
        name = provider or segment["provider"]
        provided = provider or (segment["provider"], segment["options"])
        session = onnxruntime.InferenceSession(folder / segment["file"], self.options, providers=[provided])
        if name not in session.get_providers():  # ONNX Runtime only warns
            raise RuntimeError(
                f"{segment['file']}: this onnxruntime has no {name}; its providers are {session.get_providers()}"
            )
        return session
