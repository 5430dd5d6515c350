#!/usr/bin/env python3
"""Compares our counts with those of the two official clients of the Hub: compare.py FOLDER OURS JS PY.

Parameters must equal those of huggingface.js. Elements must equal those of huggingface_hub, which counts a scalar as
one element. A repository with a known difference (`FOLDER/differs`) must show it. The clients read weights under other
names than `model.safetensors` only if they are given the path; otherwise they must return an error. Every rule
must have been applied at least once. Prints each difference with its reason; exits with 1 if one has no reason.
"""

import json
import sys
from collections import Counter
from pathlib import Path

# Classes that must occur in the generated repositories, by method.
MUST_MEET = {
    None: {"as stored", "scale, not counted", "scalar, not counted"},
    "gptq": {"unpacked ×8", "unpacked ×16", "unpacked ×10", "unpacked ×4", "unpacked ×2",
             "scale, not counted", "zero point, not counted", "column order, not counted"},
    "awq": {"unpacked ×8", "scale, not counted", "zero point, not counted"},
    "bitsandbytes": {"unpacked ×2", "scale, not counted", "lookup table, not counted",
                     "quantization state, not counted"},
    "compressed-tensors": {"unpacked ×8", "unpacked ×2", "unpacked ×32/3", "unpacked ×8/3", "as stored",
                           "scale, not counted", "column order, not counted",
                           "shape of a packed weight, not counted"},
    "fp8": {"unpacked ×2", "unpacked ×8", "unpacked ×4", "as stored", "scale, not counted"},
    "mxfp4": {"unpacked ×2", "scale, not counted", "as stored"},
    "mlx": {"unpacked ×8", "unpacked ×4", "unpacked ×16/3", "scale, not counted",
            "zero point, not counted", "as stored"},
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
    names = ("model.safetensors", "model.safetensors.index.json")
    if not is_counted and not any((path / name).exists() for name in names):
        return "the weights are not where the client can read them"
    return None


def differences(ours, js, py):
    """Returns the differences as text, each with a flag: whether the other client counted anything."""
    if ours is None:
        clients = (("huggingface.js", js), ("huggingface_hub", py))
        return [(f"{name}: {answer}", True) for name, answer in clients if "error" not in answer]
    found = []
    if ours["parameterCount"] != js.get("count"):
        theirs = js.get("count", js.get("error"))
        found.append((f"parameters {ours['parameterCount']}, huggingface.js {theirs}", "count" in js))
    if stored(ours) != without_zeros(py.get("count")):
        theirs = py.get("count", py.get("error"))
        found.append((f"elements {stored(ours)}, huggingface_hub {theirs}", "count" in py))
    return found


def main(folder, ours, js, py):
    ours, js, py = lines(ours, "source"), lines(js, "repo"), lines(py, "repo")
    known, wrong, met = 0, set(js) ^ set(py), {}
    for repo in sorted(set(js) | set(ours)):
        found = differences(ours.get(repo), js.get(repo, {}), py.get(repo, {}))
        reasons = [known_reason(folder, repo, is_counted) for _, is_counted in found]
        for (difference, _), reason in zip(found, reasons):
            print(f"{repo}: {difference}\n    {reason or 'NOT KNOWN'}")
        if found and all(reasons):
            known += 1
        elif found or repo not in ours:
            wrong.add(repo)
        elif (Path(folder) / repo / "reason.txt").exists():
            print(f"{repo}: no difference, though one is known: {known_reason(folder, repo, True)}")
            wrong.add(repo)
    for document in ours.values():
        counting = document["breakdown"]
        met.setdefault(counting.get("method"), set()).update(g["reason"] for g in counting["groups"])
    unpacked = sum(document["parameterTotal"] > document["elementTotal"] for document in ours.values())
    for method, reasons in MUST_MEET.items():
        for reason in sorted(reasons - met.get(method, set())):
            print(f"{method}: no tensor was {reason}")
            wrong.add(method)
    print(f"{len(ours)} repositories, {unpacked} of them with more parameters than elements:",
          f"{known} known differences, {len(wrong)} others")
    return 1 if wrong or not ours else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
