"""A program whose types mypy and pyright check."""
# pyright: strict

import asyncio
from collections.abc import Iterator

import hf_meta
from hf_meta import CountReport, Diff, HfMetaError, Progress, VerifyReport


def total(name: str) -> int:
    try:
        report: CountReport = hf_meta.inspect(name, revision="main", memory=True, batch=2, cache_dtype="bf16")
    except HfMetaError as error:
        code: str = error.help or error.code
        raise SystemExit(code) from error
    largest: tuple[str, int] = max(report.parameter_count.items(), key=lambda item: item[1])
    print(largest, report.fetch.requests, [finding.kind for finding in report.findings], hf_meta.__version__)
    return report.parameter_total + (report.memory.weight_bytes if report.memory else 0)


def tensors(name: str) -> Iterator[tuple[str, list[int]]]:
    for file in hf_meta.get_safetensors_metadata(name).files_metadata.values():
        yield from ((tensor, info.shape) for tensor, info in file.tensors.items())


def first_rows(name: str, embedding: str) -> dict[str, object]:
    return dict(hf_meta.read_tensors(name, [f"{embedding}[0:2]"], max_memory=1 << 20))


async def norms(name: str) -> list[str]:
    return [tensor async for tensor, _ in hf_meta.aio.read_tensors(name, "*norm*")]


def changed(name: str, base: str) -> list[str]:
    report: VerifyReport = hf_meta.verify(name, all=True)
    diff: Diff = hf_meta.diff(base, name, ignore_shards=True)
    return [finding.message for finding in report.findings] + [change.tensor for change in diff.changes]


def retitle(path: str, title: str) -> str | None:
    edited: list[hf_meta.EditedFile] = hf_meta.edit_metadata(path, set={"modelspec.title": title}, delete="ss_*")
    report = hf_meta.inspect(edited[0].path)
    texts: dict[str, str] = report.metadata[report.filepaths[-1]]
    spec: hf_meta.ModelSpec | None = report.model_spec
    return spec.title if spec else texts.get("modelspec.title")


def show(progress: Progress) -> None:
    print(progress.done, progress.total, progress.failed)


async def totals(names: list[str]) -> list[int]:
    reports = await asyncio.gather(*[hf_meta.aio.inspect(name) for name in names])
    return [report.parameter_total for report in reports]


if __name__ == "__main__":
    print(total("gpt2"), dict(tensors("gpt2")), asyncio.run(totals(["gpt2"])))
    print(changed("gpt2", "gpt2"))
    for rows in hf_meta.read_batches(iter(["gpt2"]), jobs=4, quota_share=0.5, progress=show):
        print(rows.num_rows)
