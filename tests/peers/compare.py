#!/usr/bin/env python3
"""Holds our counts against those of the two clients of the Hub: compare.py FOLDER OURS JS PY.

Parameters must be those of huggingface.js, and elements, with the scalars that it counts as one, those of
huggingface_hub. Where a difference is known (`FOLDER/differs`), there must be one. Every rule must have
been met. Prints what it compared and every difference; exits with 1 if one is not known.
"""

import json
import sys
from collections import Counter
from pathlib import Path

# Reasons that the generated repositories must have met, by method.
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


def main(folder, ours, js, py):
    ours, js, py = lines(ours, "source"), lines(js, "repo"), lines(py, "repo")
    wrong = set(js) ^ set(ours) | set(py) ^ set(ours)
    for repo in sorted(wrong):
        print(f"{repo}: not answered by every client")
    known = unpacked = 0
    met = {}
    for repo, document in ours.items():
        counting = document["counting"]
        met.setdefault(counting.get("method"), set()).update(g["reason"] for g in counting["groups"])
        unpacked += document["parameterCount"] != document["elementCount"]
        reason = Path(folder) / repo / "reason.txt"
        theirs = js.get(repo, {}).get("count")
        if document["parameterCount"] != theirs:
            print(f"{repo}: parameters {document['parameterCount']}, huggingface.js {js.get(repo)}")
            if reason.exists():
                known += 1
                print(f"    known: {reason.read_text()}")
            else:
                wrong.add(repo)
        elif reason.exists():
            print(f"{repo}: no difference, though one is known: {reason.read_text()}")
            wrong.add(repo)
        theirs = py.get(repo, {}).get("count")
        if stored(document) != without_zeros(theirs):
            print(f"{repo}: elements {stored(document)}, huggingface_hub {py.get(repo)}")
            wrong.add(repo)
    for method, reasons in MUST_MEET.items():
        for reason in sorted(reasons - met.get(method, set())):
            print(f"{method}: no tensor was {reason}")
            wrong.add(method)
    print(f"{len(ours)} repositories, {unpacked} of them with other parameters than elements:",
          f"{known} known differences, {len(wrong)} others")
    return 1 if wrong or not ours else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
