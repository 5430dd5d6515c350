#!/usr/bin/env python3
"""Compares our counts with those of the two official clients of the Hub: compare.py FOLDER OURS JS PY.

Parameters must be the known size of the model, and equal those of huggingface.js unless a reason is known. Elements must
equal those of huggingface_hub, which counts a scalar as one element. A repository with a known difference
(`FOLDER/differs`) must show it. The clients read weights under other names than `model.safetensors` only if they are
given the path; otherwise they must return an error. Prints each difference with its reason; exits with 1 if one has
no reason.
"""

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The reasons why huggingface.js counts a layout differently, by the start of the fixture's name. A new case in
# `tests/oracles` states its reason itself, as `peers`.
REASONS = {
    "aqlm": "codes are counted as stored, and codebooks and scales as parameters",
    "auto-round": "the method is unknown to huggingface.js, so words are counted as stored",
    "autoawq-real-gemv-fast": "every word counts as 8 weights, also one of 16 bits",
    "awq-gemv-fast": "every word counts as 8 weights, also one of 16 bits",
    "awq-llm-awq": "every word counts as 8 weights, also one of 16 bits",
    "bitblas": "every element of `qweight` counts as a word of 32 bits, or as stored",
    "bitnet": "the method is unknown to huggingface.js, so bytes are counted as stored",
    "bitsandbytes-fp4-float32": "only bytes are unpacked",
    "bitsandbytes-int8": "`SCB` is counted",
    "bitsandbytes-real-int8": "`SCB` is counted",
    "bitsandbytes-nf4-bfloat16": "only bytes are unpacked",
    "bitsandbytes-nf4-float16": "only bytes are unpacked",
    "bitsandbytes-nf4-no-config": "without a configuration everything is counted as stored",
    "bitsandbytes-real-nf4-bfloat16": "only bytes are unpacked",
    "bitsandbytes-real-nf4-float32": "only bytes are unpacked",
    "comfy-kitchen-real": "without a configuration everything is counted as stored",
    "comfyui-nvfp4": "without a configuration everything is counted as stored",
    "compressed-tensors-marlin-24": "half of the weights is stored, and `meta` and scales are counted",
    "compressed-tensors-mixed": "patterns with alternatives match nothing, so modules get the bits of another group",
    "compressed-tensors-sparse": "weights that are zero are not stored, and the bitmask is counted",
    "compressed-tensors-w3-channel-padded-words": "values that do not cross words are counted as if they did",
    "compressed-tensors-w3-group-padded-words": "values that do not cross words are counted as if they did",
    "compressed-tensors-w4-odd-rows": "the padding of rows is counted",
    "compressed-tensors-w4-stacked-experts": "scales of stacked experts are counted",
    "compressed-tensors-float-quantized-kv": "scales of the key-value cache are counted",
    "compressed-tensors-w4-kv-zero-points": "scales and zero points of the key-value cache are counted",
    "comfyui-tokenizer": "the bytes of the tokenizer are counted",
    "dfloat11": "compressed exponents are counted",
    "eetq": "scales are counted",
    "exl2": "words are counted as stored",
    "exl3": "words are counted as stored",
    "fbgemm": "scales and limits of activations are counted",
    "fouroversix": "bytes are counted as stored, and scales as parameters",
    "fp-quant": "bytes are counted as stored, and rotations and scales as parameters",
    "fp8-block-stacked-experts": "scales of stacked experts are counted",
    "fp8-packed-fp4": "bytes are unpacked only if the configuration has `expert_dtype`",
    "gemma": "the method is unknown to huggingface.js, so bytes are counted as stored",
    "gguf-blocks": "bytes of blocks are counted as stored",
    "gptq-3bit": "a word of 32 bits counts as 10 weights, but values of 3 bits cross words",
    "gptq-4bit-int64-words": "every word counts as one of 32 bits",
    "gptq-4bit-int8-words": "every word counts as one of 32 bits",
    "gptq-5bit": "a word of 32 bits counts as 6 weights, but values of 5 bits cross words",
    "gptq-6bit": "a word of 32 bits counts as 5 weights, but values of 6 bits cross words",
    "gptq-7bit": "a word of 32 bits counts as 4 weights, but values of 7 bits cross words",
    "gptq-8bit-int16-words": "every word counts as one of 32 bits",
    "gptq-dynamic": "every module gets the bits of the whole model",
    "gptq-eora": "the correction of EoRA is counted",
    "gptq-marlin": "the parts of Marlin are unknown to huggingface.js",
    "gptq-quantize-config-only": "only `config.json` is read",
    "gptqmodel-real": "values of 3, 5, 6 and 7 bits cross words",
    "higgs": "words are counted as stored, and tables and scales as parameters",
    "hqq": "only bytes of 4 bits under another name are unpacked, and scales are counted",
    "inc": "the method is unknown to huggingface.js, so words are counted as stored",
    "intel-auto-round": "the method is unknown to huggingface.js, so words are counted as stored",
    "lightx2v": "bytes are counted as stored, and scales as parameters",
    "llmcompressor-real-w4a16-quip": "transforms are counted",
    "llmcompressor-real-w4a16-spinquant": "transforms are counted",
    "llmcompressor-real-mixed": "patterns with alternatives match nothing, so modules get the bits of another group",
    "mlx-real-1bit": "a width of 1 is unknown to huggingface.js, so words are counted as stored",
    "mlx-nvfp4-global-scale": "the global scales are counted",
    "moshi": "scales are counted",
    "metal": "the method is unknown to huggingface.js, so words are counted as stored",
    "modelopt": "the method is unknown to huggingface.js, so bytes are counted as stored, and some scales as parameters",
    "neural-compressor": "without a configuration words and scales are counted as stored",
    "nunchaku": "the method is unknown to huggingface.js, and low-rank branches are counted",
    "paroquant": "the method is unknown to huggingface.js, and rotations are counted",
    "qoq": "the method is unknown to huggingface.js, so bytes are counted as stored, and scales as parameters",
    "qtip": "words are counted as stored, and tables as parameters",
    "qqq": "the parts of QQQ are unknown to huggingface.js",
    "quanto": "the method is unknown to huggingface.js, so bytes are counted as stored, and scales as parameters",
    "quark": "the method is unknown to huggingface.js, so elements are counted as stored",
    "quip-sharp": "codes are counted as stored",
    "sdnq": "the method is unknown to huggingface.js, so elements are counted as stored, and scales as parameters",
    "sinq": "the method is unknown to huggingface.js, so elements are counted as stored, and scales as parameters",
    "spqr": "words are counted as stored",
    "torchao": "the method is unknown to huggingface.js, and scales are counted",
    "transformers-real": "the method is unknown to huggingface.js, so elements are counted as stored",
    "vptq": "codes are counted as stored, and codebooks as parameters",
}

# What the pages say about the layouts of known size.
STATED = {
    "README.md": "| 0 of {all} | {right} of {all} | not compared |",
    "src/docs/quantization.md": "counts {right}. The others",
}


def lines(path, key):
    documents = map(json.loads, Path(path).read_text().splitlines())
    return {document[key]: document for document in documents}


def stored(document):
    """Elements per dtype, each scalar counted as one."""
    return dict(Counter(document["elementCount"]) + Counter(document["scalarCount"]))


def without_zeros(counts):
    return {dtype: count for dtype, count in (counts or {}).items() if count}


def known_reason(folder, repo, is_counted):
    """Returns the known reason why a client counts a repository differently or fails; None if there is none."""
    path = Path(folder) / repo
    if (path / "reason.txt").exists():
        return (path / "reason.txt").read_text()
    if repo.startswith("quantized/"):
        name = repo.removeprefix("quantized/")
        starts = [start for start in REASONS if name.startswith(start)]
        return REASONS[max(starts, key=len)] if starts else None
    names = ("model.safetensors", "model.safetensors.index.json")
    if not is_counted and not any((path / name).exists() for name in names):
        return "the weights are not where the client can read them"
    return None


def not_known(repo):
    """Returns what to do about a difference without a reason."""
    if repo.startswith("quantized/"):
        return f'NOT KNOWN: if our count is right, add peers="REASON" to the case `{repo.removeprefix("quantized/")}` in tests/oracles'
    return "NOT KNOWN"


def differences(ours, js, py):
    """Returns the differences as text, each with a flag: whether the other client counted anything."""
    if ours is None:
        clients = (("huggingface.js", js), ("huggingface_hub", py))
        return [(f"{name}: {answer}", True) for name, answer in clients if "error" not in answer]
    found = []
    if without_zeros(ours["parameterCount"]) != without_zeros(js.get("count")):
        theirs = js.get("count", js.get("error"))
        found.append((f"parameters {ours['parameterCount']}, huggingface.js {theirs}", "count" in js))
    if stored(ours) != without_zeros(py.get("count")):
        theirs = py.get("count", py.get("error"))
        found.append((f"elements {stored(ours)}, huggingface_hub {theirs}", "count" in py))
    return found


def is_true(folder, document):
    """Returns whether our count is the known size of the model. Where a header may not show it, the count may be marked."""
    path = Path(folder) / document["source"]
    if not (path / "truth.txt").exists():
        return True
    if not document["parameterExact"]:
        return (path / "inexact.txt").exists()
    return document["parameterTotal"] == int((path / "truth.txt").read_text())


def main(folder, ours, js, py):
    ours, js, py = lines(ours, "source"), lines(js, "repo"), lines(py, "repo")
    known, wrong, by_layout = 0, set(js) ^ set(py), Counter()
    for repo in sorted(set(js) | set(ours)):
        found = differences(ours.get(repo), js.get(repo, {}), py.get(repo, {}))
        reasons = [known_reason(folder, repo, is_counted) for _, is_counted in found]
        for (difference, _), reason in zip(found, reasons):
            print(f"{repo}: {difference}\n    {reason or not_known(repo)}")
        if found and all(reasons):
            known += 1
        elif found or repo not in ours:
            wrong.add(repo)
        elif (Path(folder) / repo / "reason.txt").exists():
            print(f"{repo}: no difference, though one is known: {known_reason(folder, repo, True)}")
            wrong.add(repo)
        if repo.startswith("quantized/"):
            by_layout["right" if not found else "wrong"] += 1
    for document in ours.values():
        if not is_true(folder, document):
            print(f"{document['source']}: {document['parameterTotal']} is not the known size of the model")
            wrong.add(document["source"])
    print(f"{by_layout.total()} layouts of known size: huggingface.js agrees on {by_layout['right']}")
    for page, text in STATED.items():
        text = text.format(all=by_layout.total(), right=by_layout["right"])
        if text not in (ROOT / page).read_text():
            print(f"{page} must say: {text}")
            wrong.add(page)
    print(f"{len(ours)} repositories: {known} known differences, {len(wrong)} others")
    return 1 if wrong or not ours else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
