#!/usr/bin/env python3
"""Compares the counts of `hf-meta` with every architecture of `transformers`, at its default size.

    tests/oracles/architectures.py FOLDER HF_META [MODEL_TYPE ...]

Each architecture is built on the meta device, so no weights exist. Its checkpoint is written to `FOLDER/MODEL_TYPE` as
`save_pretrained` names the tensors: `config.json`, and a sparse `model.safetensors` that takes the space of its header.
An architecture that is there already is not built again. `HF_META` is the program.

Prints the number of architectures built, exact, marked (`parameterExact: false`) and silently wrong, and lists every
other finding about quantization or experts, because none of these checkpoints is quantized. The exit code is 1 unless
all are exact.
"""

import json
import math
import multiprocessing
import os
import pathlib
import subprocess
import struct
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

from moe import ARCHITECTURES, DTYPES

# The findings that a model without packed weights must not have.
DOUBTS = {"unresolvedModule", "conflictingComponents", "suspectedPacking", "unknownQuantization"}

# The auto classes, from the most to the least common purpose.
PURPOSES = ("IMAGE_TEXT_TO_TEXT", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "SPEECH_SEQ_2_SEQ", "CTC", "IMAGE_CLASSIFICATION", "PRETRAINING")

PART = "part of other architectures"


def build(model_type, settings):
    """Returns the model of an architecture on the meta device; `None` if it is only a part of others."""
    import torch
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    kind = CONFIG_MAPPING[model_type]
    config = kind(**settings)
    mappings = [getattr(auto, f"MODEL_FOR_{purpose}_MAPPING") for purpose in PURPOSES] + [auto.MODEL_MAPPING]
    model_class = next((mapping[kind] for mapping in mappings if kind in mapping), None)
    if model_class is None:
        return None
    model_class = model_class[0] if isinstance(model_class, (list, tuple)) else model_class
    with torch.device("meta"):
        model = model_class(config)
    model.config.architectures = [type(model).__name__]
    return model.to(torch.bfloat16)


def write(folder, model):
    """Writes the checkpoint of a model without its weights."""
    from transformers.core_model_loading import revert_weight_conversion

    persistent = set(model.state_dict())
    tensors = {name: tensor for name, tensor in [*model.named_parameters(), *model.named_buffers()] if name in persistent}
    header, end = {}, 0
    for name, tensor in sorted(revert_weight_conversion(model, tensors).items()):
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[str(tensor.dtype).removeprefix("torch.")], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    (folder / "config.json").write_text(model.config.to_json_string(use_diff=False))
    (folder / "num_parameters").write_text(str(model.num_parameters()))
    (folder / "total").write_text(str(sum(tensor.numel() for tensor in tensors.values() if tensor.dim())))


def prepare(folder):
    """Writes the checkpoint of an architecture unless it exists. Returns the reason if it cannot be built."""
    reason = folder / "not-built"
    # Some default configurations are incomplete. The settings in `moe` complete most of them.
    for settings in ({}, ARCHITECTURES.get(folder.name)):
        if (folder / "total").exists() or settings is None:
            break
        folder.mkdir(parents=True, exist_ok=True)
        try:
            model = build(folder.name, settings)
            reason.write_text(PART) if model is None else write(folder, model)
        except Exception as error:
            reason.write_text(f"{type(error).__name__}: {error}"[:200].split("\n")[0])
    return None if (folder / "total").exists() else reason.read_text()


def main():
    folder, program, *names = sys.argv[1:]
    folder = pathlib.Path(folder).resolve()
    if not names:
        from transformers import CONFIG_MAPPING

        names = sorted(CONFIG_MAPPING.keys())
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=40) as pool:
        reasons = dict(zip(names, pool.map(prepare, [folder / name for name in names], chunksize=1)))
    built = [name for name, reason in reasons.items() if reason is None]
    exact, marked, wrong, doubted = [], [], [], []
    for name in built:
        done = subprocess.run([program, str(folder / name), "--format", "json"], capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        report = json.loads(done.stdout)
        total = int((folder / name / "total").read_text())
        doubts = [finding["message"] for finding in report["findings"] if finding["kind"] in DOUBTS]
        if not report["parameterExact"]:
            marked.append(f"{name}: {doubts}")
        elif report["parameterTotal"] != total:
            wrong.append(f"{name}: {report['parameterTotal']:,} of {total:,}")
        else:
            exact.append(name)
            doubted += [f"{name}: {doubts}"] if doubts else []
            doubted += [f"{name}: moeUnknown {report['moeUnknown']}"] if report.get("moeUnknown") else []
    for title, lines in (("not built", [f"{name}: {reason}" for name, reason in reasons.items() if reason not in (None, PART)]), ("marked", marked), ("silently wrong", wrong), ("doubted", doubted)):
        for line in lines:
            print(f"{title}: {line}")
    whole = sum(reason != PART for reason in reasons.values())
    print(f"{whole} architectures, {len(built)} built, {len(exact)} exact, {len(marked)} marked, {len(wrong)} silently wrong, {len(doubted)} doubted")
    sys.exit(bool(marked or wrong))


if __name__ == "__main__":
    main()
