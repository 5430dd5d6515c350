"""Results as dataclasses, with the fields of the JSON in snake_case."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import dataclass, field, is_dataclass
from functools import cache, cached_property
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


@dataclass
class TensorInfo:
    """A tensor in a file, with the fields of `huggingface_hub.utils.TensorInfo`."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]

    @property
    def parameter_count(self) -> int:
        """The number of elements as stored."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class SafetensorsFileMetadata:
    """The header of a file, with the fields of `huggingface_hub.utils.SafetensorsFileMetadata`."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    pickle: dict[str, Any] | None = None

    @property
    def parameter_count(self) -> dict[str, int]:
        """The number of elements as stored, per dtype."""
        counts: dict[str, int] = {}
        for tensor in self.tensors.values():
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.parameter_count
        return counts


@dataclass(frozen=True)
class SafetensorsRepoMetadata:
    """The headers of a repository, with the fields of `huggingface_hub.utils.SafetensorsRepoMetadata`.

    `parameter_count` counts the elements as stored, as huggingface_hub does. `report` has the true counts: of quantized
    models, those before quantization.
    """

    metadata: dict[str, Any] | None
    sharded: bool
    weight_map: dict[str, str]
    files_metadata: dict[str, SafetensorsFileMetadata]
    report: CountReport = field(repr=False)

    @property
    def parameter_count(self) -> dict[str, int]:
        """The number of elements as stored, per dtype."""
        counts: dict[str, int] = {}
        for file in self.files_metadata.values():
            for dtype, count in file.parameter_count.items():
                counts[dtype] = counts.get(dtype, 0) + count
        return counts


@dataclass(frozen=True)
class FetchStats:
    """The requests, bytes and time that a call took."""

    requests: int
    bytes_read: int
    weight_bytes: int
    seconds: float
    age_seconds: int | None = None
    stale: bool = False


@dataclass(frozen=True)
class Finding:
    """A defect or a peculiarity of the files. `help` says what to do, and `details` has the fields of its kind, in snake_case."""

    severity: str
    kind: str
    message: str
    help: str | None
    details: dict[str, Any]


@dataclass(frozen=True)
class ModelDescription:
    """The model according to the keys of a GGUF file."""

    kind: str | None = None
    architecture: str | None = None
    file_type: str | None = None
    context_length: int | None = None
    layers: int | None = None
    draft_layers: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    tokenizer: str | None = None
    vocabulary: int | None = None
    files: int | None = None
    tensors: int | None = None


@dataclass(frozen=True)
class WeightSet:
    """Weights that belong together: a file, or the shards of a model."""

    path: str
    files: int
    bytes: int
    format: str
    kind: str
    quantization: str | None = None


@dataclass(frozen=True)
class MixtureOfExperts:
    """The parameters of a mixture of experts that are active for a token."""

    num_experts: int
    top_k: int
    always_active: int
    routed_active: int
    draft: int
    active: int
    active_without_lookup_tables: int
    active_is_upper_bound: bool
    formula: str
    per_expert: int | None = None


@dataclass(frozen=True)
class MemoryUsage:
    """The memory of the weights and the cache. Values are None if unknown; `unknown` and `reason` have the reason."""

    context: int
    batch: int
    engine: str
    cache_dtype: str
    exact: bool
    weight_bytes: int
    context_source: str
    cache_elements: int | None = None
    cache_bytes: int | None = None
    state_elements: int | None = None
    state_bytes: int | None = None
    total_bytes: int | None = None
    architecture: str | None = None
    max_context: int | None = None
    layers: int | None = None
    caches: list[dict[str, Any]] | None = None
    unknown: dict[str, Any] | None = None
    components: list[dict[str, Any]] | None = None
    vllm: dict[str, Any] | None = None
    budget_bytes: int | None = None
    usable_bytes: int | None = None
    fits: bool | None = None
    reason: dict[str, Any] | None = None
    longest_context: int | None = None
    sequences: int | None = None
    quantizations: list[dict[str, Any]] | None = None
    largest_quantization: str | None = None


@dataclass(frozen=True)
class Resolution:
    """The width and the height of images in pixels."""

    width: int
    height: int


@dataclass(frozen=True)
class Thumbnail:
    """The description of an image: its media type according to its bytes, its size in pixels, and in bytes."""

    media_type: str
    width: int
    height: int
    bytes: int


@dataclass(frozen=True)
class ModelSpec:
    """The fields of the SAI Model Spec, or the keys of a GGUF file with the same meaning.

    A field is None if it is missing or does not have its type. `missing` lists the required fields that are missing.
    """

    sai_model_spec: str | None = None
    architecture: str | None = None
    implementation: str | None = None
    title: str | None = None
    description: str | None = None
    author: str | None = None
    date: str | None = None
    hash_sha256: str | None = None
    implementation_version: str | None = None
    license: str | None = None
    usage_hint: str | None = None
    thumbnail: Thumbnail | None = None
    tags: list[str] | None = None
    merged_from: list[str] | None = None
    resolution: Resolution | None = None
    trigger_phrase: str | None = None
    prediction_type: str | None = None
    timestep_range: list[int] | None = None
    encoder_layer: str | None = None
    preprocessor: str | None = None
    is_negative_embedding: bool | None = None
    unet_dtype: list[str] | None = None
    vae_dtype: list[str] | None = None
    data_format: str | None = None
    format_type: str | None = None
    language: list[str] | None = None
    format_template: str | None = None
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EditedFile:
    """The result of the edit of a file: its path, and the numbers of entries that were added, changed and deleted.

    `in_place` is False if a new file was written. `free_bytes` is the space in the header for further edits in place.
    """

    path: str
    added: int
    changed: int
    deleted: int
    in_place: bool
    free_bytes: int


@dataclass(frozen=True)
class TensorGroup:
    """Tensors that are counted for the same reason."""

    dtype: str
    reason: str
    tensors: int
    elements: int
    parameters: int
    bytes: int
    buffer: str | None = None


@dataclass(frozen=True)
class QuantizedModules:
    """Quantized modules of one kind."""

    layout: str
    evidence: str
    parts: dict[str, str]
    modules: int
    elements: int
    parameters: int
    bits: int | float | None = None


@dataclass(frozen=True)
class Breakdown:
    """The explanation of a count."""

    rules: dict[str, str]
    groups: list[TensorGroup]
    method: str | None = None
    modules: list[QuantizedModules] | None = None
    unresolved: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class CountReport:
    """The counts of a repository, a URL or a path. `to_json` returns the JSON, with the names of huggingface.js.

    Counts per dtype are dicts. `header`, or `index` and `headers`, exist only with `headers=True`.
    """

    source: str
    format: str
    sharded: bool
    parameter_count: dict[str, int]
    parameter_total: int
    parameter_exact: bool
    element_count: dict[str, int]
    element_total: int
    scalar_count: dict[str, int]
    buffer_count: dict[str, int]
    byte_count: dict[str, int]
    byte_total: int
    breakdown: Breakdown
    filepaths: list[str]
    findings: list[Finding]
    fetch: FetchStats
    plan: str
    checked_against_bytes: bool
    commit: str | None = None
    model: ModelDescription | None = None
    declared_total: int | None = None
    moe: MixtureOfExperts | None = None
    moe_unknown: str | None = None
    other_sets: list[WeightSet] | None = None
    memory: MemoryUsage | None = None
    adapter: dict[str, Any] | None = None
    header: SafetensorsFileMetadata | None = field(default=None, repr=False)
    index: dict[str, Any] | None = field(default=None, repr=False)
    headers: dict[str, SafetensorsFileMetadata] | None = field(default=None, repr=False)
    _json: str = field(default="", repr=False, compare=False)
    _metadata: str = field(default="", repr=False, compare=False)

    @cached_property
    def _metadata_files(self) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = json.loads(self._metadata)["files"] if self._metadata else []
        return files

    @property
    def metadata(self) -> dict[str, dict[str, str]]:
        """The metadata of each file by its path, as texts."""
        return {file["path"]: file["metadata"] or {} for file in self._metadata_files}

    @property
    def model_spec(self) -> ModelSpec | None:
        """The fields of the SAI Model Spec in the first file that has any; None if no file has."""
        specs = [file["modelSpec"] for file in self._metadata_files if file["modelSpec"]]
        spec: ModelSpec | None = _decode(ModelSpec, specs[0]) if specs else None
        return spec

    def __repr__(self) -> str:
        names = "source", "commit", "parameter_count", "parameter_total", "parameter_exact", "byte_total"
        return f"CountReport({', '.join(f'{name}={getattr(self, name)!r}' for name in names)}, ...)"

    def to_json(self) -> str:
        """Returns the JSON that `hf-meta --json` prints: the fields of huggingface.js, and further ones."""
        return self._json

    def _repr_html_(self) -> str:
        names = sorted(self.byte_count, key=lambda dtype: -self.parameter_count.get(dtype, 0))
        counts = self.parameter_count, self.element_count, self.byte_count
        rows = [(dtype, *(count.get(dtype, 0) for count in counts)) for dtype in names]
        rows.append(("total", self.parameter_total, self.element_total, self.byte_total))
        caption = self.source if self.memory is None else f"{self.source}: {_memory(self.memory)}"
        return _table(caption, ("dtype", "parameters", "elements", "bytes"), rows)


def _memory(memory: MemoryUsage) -> str:
    """Describes the bytes that a model needs, and whether it fits."""
    total = "unknown" if memory.total_bytes is None else f"{memory.total_bytes:,} bytes"
    text = f"memory at {memory.context:,} tokens: {total}"
    if memory.budget_bytes is None:
        return text
    answer = {True: "fits into", False: "does not fit into", None: "unknown whether it fits into"}[memory.fits]
    return f"{text}, {answer} {memory.budget_bytes:,} bytes"


# The maximum number of rows in the table of a notebook.
_MAX_ROWS = 50


def _counted(number: int, noun: str) -> str:
    """Returns a number and its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(caption: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Returns a table for notebooks. All texts are escaped. Long tables end with the number of the other rows."""

    def text(value: Any) -> str:
        return f"{value:,}" if isinstance(value, int) else html.escape("" if value is None else str(value))

    lines = ["".join(f"<th>{column}</th>" for column in columns)]
    lines += ["".join(f"<td>{text(value)}</td>" for value in row) for row in rows[:_MAX_ROWS]]
    if len(rows) > _MAX_ROWS:
        lines.append(f'<td colspan="{len(columns)}">{len(rows) - _MAX_ROWS:,} more</td>')
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


@dataclass(frozen=True)
class VerifiedSet:
    """The result of verifying one weight set. `findings` is None if only one set was checked."""

    path: str
    valid: bool
    complete: bool
    files: int
    valid_files: int
    tensors: int
    parameters: dict[str, Any]
    config_check: dict[str, Any]
    findings: list[Finding] | None = None


@dataclass(frozen=True)
class EngineReport:
    """The answer whether an engine loads a model: `loads` is None if it is unknown."""

    name: str
    version: str
    date: str
    loads: bool | None
    reasons: list[dict[str, Any]]
    gpus: dict[str, Any] | None = None
    memory: MemoryUsage | None = None


@dataclass(frozen=True)
class VerifyReport:
    """The findings of a repository, a URL or a path. `to_json` returns the JSON of `hf-meta verify --json`.

    A report is true if it is `valid`.
    """

    source: str
    valid: bool
    complete: bool
    filepaths: list[str]
    files: int
    valid_files: int
    tensors: int
    parameters: dict[str, Any]
    findings: list[Finding]
    sets: list[VerifiedSet]
    fetch: FetchStats
    commit: str | None = None
    loader: str | None = None
    adapter: dict[str, Any] | None = None
    unchecked: list[str] | None = None
    values: dict[str, Any] | None = None
    engine: EngineReport | None = None
    _json: str = field(default="", repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.valid

    def to_json(self) -> str:
        """Returns the JSON that `hf-meta verify --json` prints."""
        return self._json

    def _repr_html_(self) -> str:
        word = "valid" if self.valid else "not valid"
        files, tensors = _counted(self.files, "file"), _counted(self.tensors, "tensor")
        caption = f"{self.source}: {word}, {self.valid_files:,} of {files}, {tensors}"
        rows = [(finding.severity, finding.kind, finding.message, finding.help or "") for finding in self.findings]
        return _table(caption, ("severity", "kind", "message", "help"), rows)


@dataclass(frozen=True)
class DiffSide:
    """One of two checkpoints that were compared."""

    source: str
    files: int
    tensors: int
    parameter_count: dict[str, int]
    parameter_total: int
    element_count: dict[str, int]
    element_total: int
    byte_count: dict[str, int]
    byte_total: int
    commit: str | None = None


@dataclass(frozen=True)
class TensorChange:
    """A difference of a tensor. `before` and `after` have its dtype, shape and file, or are None."""

    tensor: str
    kinds: list[str]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


@dataclass(frozen=True)
class Diff:
    """The differences between two checkpoints. `to_json` returns the JSON of `hf-meta diff --json`.

    It is true if there are differences, like a list of them.
    """

    equal: bool
    before: DiffSide
    after: DiffSide
    removed: int
    added: int
    reshaped: int
    retyped: int
    moved: int
    unchanged: int
    changes: list[TensorChange] = field(repr=False)
    renamed: dict[str, Any] | None = None
    quantized: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    _json: str = field(default="", repr=False, compare=False)

    def __bool__(self) -> bool:
        return not self.equal

    def to_json(self) -> str:
        """Returns the JSON that `hf-meta diff --json` prints."""
        return self._json

    def _repr_html_(self) -> str:
        counts = [f"{getattr(self, kind):,} {kind}" for kind in ("removed", "added", "reshaped", "retyped", "moved")]
        caption = f"{self.before.source} → {self.after.source}: {', '.join(counts)}, {self.unchanged:,} unchanged"
        rows = [
            (change.tensor, ", ".join(change.kinds), _state(change.before), _state(change.after))
            for change in self.changes
        ]
        return _table(caption, ("tensor", "change", "before", "after"), rows)


def _state(state: dict[str, Any] | None) -> str | None:
    """Returns the dtype, the shape and the file of a tensor as text."""
    return None if state is None else " ".join(str(value) for value in state.values())


@dataclass(frozen=True)
class CensusSummary:
    """The number of rows of a census, by status and error code; the code of rows without an error is empty."""

    rows: dict[tuple[str, str], int]
    already_read: int
    carried_over: int
    not_recounted: int

    @property
    def repos(self) -> int:
        """The number of rows."""
        return sum(self.rows.values())

    @property
    def failed(self) -> int:
        """The number of rows with the status `failed`."""
        return sum(count for (status, _), count in self.rows.items() if status == "failed")


@dataclass(frozen=True)
class CensusChange:
    """A difference between two censuses: a repository was `added` or `removed`, or a column of it has `changed`.

    `before` and `after` are the values, with times in milliseconds since 1970 and digests in hexadecimal.
    """

    change: str
    repo: str
    column: str | None
    before: Any
    after: Any


def to_report(texts: tuple[str, str]) -> CountReport:
    """Returns the report with this JSON, and the JSON of the metadata."""
    text, metadata = texts
    report: CountReport = _decode(CountReport, {**json.loads(text), "_json": text, "_metadata": metadata})
    return report


def to_edited_files(text: str) -> list[EditedFile]:
    """Returns the edited files with this JSON."""
    files: list[EditedFile] = _decode(list[EditedFile], json.loads(text))
    return files


def to_verification(text: str) -> VerifyReport:
    """Returns the verification with this JSON."""
    report: VerifyReport = _decode(VerifyReport, {**json.loads(text), "_json": text})
    return report


def to_weight_sets(text: str) -> list[WeightSet]:
    """Returns the weight sets with this JSON."""
    sets: list[WeightSet] = _decode(list[WeightSet], json.loads(text))
    return sets


def to_diff(text: str) -> Diff:
    """Returns the differences with this JSON."""
    diff: Diff = _decode(Diff, {**json.loads(text), "_json": text})
    return diff


def to_repo_metadata(texts: tuple[str, str]) -> SafetensorsRepoMetadata:
    """Returns the headers of the report with this JSON as huggingface_hub has them."""
    report = to_report(texts)
    files = report.headers or {report.filepaths[-1]: report.header or SafetensorsFileMetadata({}, {})}
    weight_map = {tensor: path for path, file in files.items() for tensor in file.tensors}
    index = report.index or {}
    return SafetensorsRepoMetadata(
        index.get("metadata"), report.sharded, index.get("weight_map", weight_map), files, report
    )


def _decode(hint: Any, value: Any) -> Any:
    """Converts JSON to a type of this module."""
    hint = get_args(hint)[0] if isinstance(hint, UnionType) else hint
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None or hint is Any:
        return value
    if hint is SafetensorsFileMetadata:
        return _header(value)
    if hint is Finding:
        known = {name: value.pop(name, None) for name in ("severity", "kind", "message", "help")}
        return Finding(**known, details={_snake_case(key): entry for key, entry in value.items()})
    if isinstance(hint, type) and is_dataclass(hint):
        fields = _fields(hint)
        values = {_snake_case(key): entry for key, entry in value.items()}
        return hint(**{name: _decode(fields[name], entry) for name, entry in values.items() if name in fields})
    if origin is list:
        return [_decode(arguments[0], entry) for entry in value]
    if origin is dict:
        return {key: _decode(arguments[1], entry) for key, entry in value.items()}
    return value


def _header(header: dict[str, Any]) -> SafetensorsFileMetadata:
    """Returns a header. That of a safetensors file has no `tensors`: they are next to its metadata."""
    metadata, pickle, nested = header.pop("__metadata__", None), None, header.get("tensors")
    if nested is not None and not isinstance(nested.get("data_offsets"), list):
        metadata, pickle, header = header.get("metadata"), header.get("pickle"), nested
    tensors = {
        name: TensorInfo(tensor["dtype"], tensor["shape"], tuple(tensor["data_offsets"]))
        for name, tensor in header.items()
    }
    return SafetensorsFileMetadata(metadata or {}, tensors, pickle)


@cache
def _fields(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _snake_case(key: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key)
