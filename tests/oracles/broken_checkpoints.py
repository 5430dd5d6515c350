#!/usr/bin/env python3
"""Breaks sound checkpoints in thirty ways, and counts what `hf-meta verify` refuses.

    tests/oracles/broken_checkpoints.py HF_META FOLDER [MODEL_TYPE ...]

`FOLDER` has the samples of `layout_samples.py`. The sound checkpoints are those of the default size, with other numbers,
and with inverted settings. Prints the share of refused ones for each way, and every warning or error about a sound one.
`STEP=7 FROM=3` takes every seventh architecture; `SOUND=0` and `BROKEN=0` leave a half out. The exit code is 1 if less than
95 % of the broken checkpoints are refused, or if more than 2 % of the sound ones have an error or a warning.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

LAYER = re.compile(r"^(.*?(?:layers|layer|h|blocks|block))\.(\d+)\.")


def write(folder, config, tensors, dtype="BF16"):
    folder.mkdir(parents=True, exist_ok=True)
    header, end = {}, 0
    for name, shape in tensors.items():
        kind = dtype if not isinstance(shape, tuple) else shape[1]
        shape = shape[0] if isinstance(shape, tuple) else shape
        size = 1
        for side in shape:
            size *= side
        start, end = end, end + size * {"BF16": 2, "F8_E4M3": 1, "F32": 4, "I64": 8}.get(kind, 2)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


def layers(tensors):
    """Returns the longest list of layers: its path and numbers."""
    found = collections.defaultdict(set)
    for name in tensors:
        if match := LAYER.match(name):
            found[match[1]].add(int(match[2]))
    return max(found.items(), key=lambda item: len(item[1]), default=(None, set()))


def matrices(tensors, start):
    return [name for name, shape in tensors.items() if name.startswith(start) and name.endswith("weight") and len(shape) == 2 and min(shape) > 1 and not re.search("bias|rel|pos|embed|codebook|experts", name)]


def ways(config, tensors, rng):
    """Yields the ways to break a checkpoint."""
    names = list(tensors)
    without = lambda gone: {name: shape for name, shape in tensors.items() if not gone(name)}
    embedding = next((name for name in names if re.search(r"(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|shared)\.weight$", name)), None)
    if embedding:
        yield "input embedding missing", config, without(lambda name: name == embedding)
    norm = next((name for name in names if re.search(r"(^|\.)(norm|ln_f|final_layer_norm|final_layernorm|final_norm|post_layernorm|layernorm)\.weight$", name) and not LAYER.match(name)), None)
    if norm:
        yield "final norm missing", config, without(lambda name: name == norm)
    head = next((name for name in names if name.endswith("lm_head.weight")), None)
    if head:
        yield "output embedding missing", config, without(lambda name: name == head)
    path, numbers = layers(tensors)
    if path and len(numbers) > 2:
        last, middle = max(numbers), sorted(numbers)[len(numbers) // 2]
        yield "last layer missing", config, without(lambda name: name.startswith(f"{path}.{last}."))
        yield "middle layer missing", config, without(lambda name: name.startswith(f"{path}.{middle}."))
        inside = matrices(tensors, f"{path}.{middle}.")
        if inside:
            one = rng.choice(inside)
            ends = one[len(f"{path}.{middle}."):]
            same = lambda name: (match := LAYER.match(name)) and match[1] == path and name[match.end():] == ends
            yield "one matrix missing in one layer", config, without(lambda name: name == one)
            yield "one matrix missing in all layers", config, without(same)
            yield "one matrix renamed in all layers", config, {(name[: -len(ends)] + ends.rsplit(".", 2)[0] + "_renamed.weight" if same(name) else name): shape for name, shape in tensors.items()}
            unequal = [name for name in inside if tensors[name][0] != tensors[name][1]]
            if unequal:
                other = rng.choice(unequal)
                yield "one matrix transposed", config, {name: shape[::-1] if name == other else shape for name, shape in tensors.items()}
            half = rng.choice(inside)
            yield "one matrix halved", config, {name: [shape[0] // 2, *shape[1:]] if name == half else shape for name, shape in tensors.items()}
            yield "one matrix with wrong columns", config, {name: [shape[0], shape[1] + 1] if name == half else shape for name, shape in tensors.items()}
        vectors = [name for name in names if name.startswith(f"{path}.{middle}.") and len(tensors[name]) == 1 and name.endswith(".weight")]
        if vectors:
            one = rng.choice(vectors)
            yield "one norm missing in one layer", config, without(lambda name: name == one)
        biases = [name for name in names if name.startswith(f"{path}.{middle}.") and name.endswith(".bias") and name[:-4] + "weight" in tensors]
        if biases:
            one = rng.choice(biases)
            yield "one bias missing in one layer", config, without(lambda name: name == one)
            yield "all tensors of one block missing", config, without(lambda name: name.startswith(f"{path}.{middle}.") and name.split(".")[len(path.split(".")) + 1] == tensors_block(tensors, path, middle))
        yield "only the first half of the layers", config, without(lambda name: (match := LAYER.match(name)) and match[1] == path and int(match[2]) >= len(numbers) // 2)
    experts = [name for name in names if re.search(r"experts\.\d+\.", name)]
    if experts:
        one = rng.choice(experts)
        yield "one expert's matrix missing", config, without(lambda name: name == one)
        prefix = re.match(r".*experts\.\d+\.", one)[0]
        yield "one expert missing", config, without(lambda name: name.startswith(prefix))
    stacked = [name for name in names if re.search(r"experts\.[a-z_]+(\.weight)?$", name) and len(tensors[name]) == 3]
    if stacked:
        one = rng.choice(stacked)
        yield "stack of experts missing", config, without(lambda name: name == one)
        yield "stack of experts with too few", config, {name: [shape[0] - 1, *shape[1:]] if name == one else shape for name, shape in tensors.items()}
    tower = next((name.split(".vision_tower.")[0] + ".vision_tower." if ".vision_tower." in name else match[1] for name in names if (match := re.match(r"^((?:model\.)?(?:vision_tower|visual|vision_model|audio_tower|vision_encoder)\.)", name))), None)
    if tower:
        yield "tower missing", config, without(lambda name: name.startswith(tower))
        inside = matrices(tensors, tower)
        if inside:
            one = rng.choice(inside)
            yield "one matrix of the tower missing", config, without(lambda name: name == one)
    projector = [name for name in names if re.search(r"projector|merger|connector", name) and len(tensors[name]) == 2]
    if projector:
        one = rng.choice(projector)
        yield "one matrix of the projector missing", config, without(lambda name: name == one)
    if embedding:
        shape = tensors[embedding]
        if len(shape) == 2:
            yield "embedding with too few rows", config, {**tensors, embedding: [shape[0] // 2, shape[1]]}
    yield "unknown dtype", config, {name: (shape, "Q9") if name == names[0] else shape for name, shape in tensors.items()}
    yield "empty file", config, {}
    yield "two tensors", config, {name: tensors[name] for name in names[:2]} if len(names) > 8 else {}
    if any(name in config for name in ("num_attention_heads", "num_hidden_layers", "hidden_size")):
        key = next(name for name in ("num_hidden_layers", "hidden_size", "num_attention_heads") if name in config)
        if isinstance(config[key], int):
            yield "configuration of another size", {**config, key: config[key] * 2}, tensors
    if any(isinstance(config.get(key), int) for key in ("num_attention_heads",)):
        yield "no heads", {**config, "num_attention_heads": 0}, tensors


def tensors_block(tensors, path, number):
    parts = len(path.split(".")) + 1
    found = collections.Counter(name.split(".")[parts] for name in tensors if name.startswith(f"{path}.{number}.") and len(name.split(".")) > parts + 1)
    return max(found, key=found.get) if found else None


def verify(program, folder):
    done = subprocess.run([program, "verify", "--json", f"{folder}/"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"valid": False, "findings": [{"severity": "error", "message": done.stderr[:200]}], "crash": done.returncode not in (1, 4)}


def load(path):
    data = json.loads(path.read_text())
    return data["samples"]


def run(job):
    program, path, tags = job
    rng = random.Random(path.stem)
    samples = [sample for sample in load(path) if not sample.get("same")]
    sound, broken = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        def check(config, tensors):
            write(folder, config, tensors)
            return verify(program, folder)
        for sample in samples:
            if sample["tag"] in tags and os.environ.get("SOUND", "1") == "1":
                report = check(sample["config"], sample["tensors"])
                bad = [finding["message"] for finding in report["findings"] if finding["severity"] != "note"]
                sound.append((f"{path.stem}/{sample['tag']}", bad, report.get("sets", [{}])[0].get("configCheck")))
        sample = samples[0] if samples else None
        if sample and os.environ.get("BROKEN", "1") == "1":
            for way, config, tensors in ways(sample["config"], sample["tensors"], rng):
                if tensors == sample["tensors"] and config == sample["config"]:
                    continue
                report = check(config, tensors)
                broken.append((path.stem, way, not report["valid"], any(f["severity"] == "warning" for f in report["findings"])))
    return sound, broken


def main():
    program, folder, *names = sys.argv[1:]
    tags = {"default", "small", "other"}
    jobs = [(program, path, tags) for path in sorted(pathlib.Path(folder).glob("*.json")) if not names or path.stem in names]
    jobs = [job for job in jobs if load(job[1])]
    if step := int(os.environ.get("STEP", 1)):
        jobs = jobs[int(os.environ.get("FROM", 0)) :: step]
    sound, broken = [], []
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for found, other in pool.map(run, jobs):
            sound += found
            broken += other
    false = [(name, bad) for name, bad, _ in sound if bad]
    for name, bad in false:
        print("false alarm", name, bad[:3])
    reasons = collections.Counter(str((check or {}).get("reason")) for _, _, check in sound if not (check or {}).get("compared"))
    by_way = collections.defaultdict(lambda: [0, 0, []])
    for name, way, refused, warned in broken:
        by_way[way][0] += 1
        by_way[way][1] += refused
        if not refused:
            by_way[way][2].append(name)
    for way, (all_, refused, left) in by_way.items():
        print(f"{refused:5} of {all_:5} {100 * refused / all_:5.1f} %  {way}: {' '.join(left[:14])}")
    total, refused = sum(item[0] for item in by_way.values()), sum(item[1] for item in by_way.values())
    print(f"refused {refused} of {total} ({100 * refused / max(total, 1):.1f} %); sound {len(sound)}, false alarms {len(false)}; compared {sum(bool((check or {}).get('compared')) for _, _, check in sound)}")
    print(reasons.most_common(12))
    sys.exit(refused < 0.95 * total or len(false) > 0.02 * len(sound))


if __name__ == "__main__":
    main()
