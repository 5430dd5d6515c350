#!/usr/bin/env python3
"""Loads tiny models whose tensors have the names of old versions, and fails if the loader misses one.

    tests/oracles/legacy_names.py

`verify` applies the same rules (`loader legacy` in `renames.txt`) and must not report what the loader accepts.
"""

import re
import sys
import tempfile
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=96)
SPEECH = dict(SMALL, conv_dim=(16, 16), conv_kernel=(3, 3), conv_stride=(2, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
GAMMA = [(r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta")]
NORM = [(r"parametrizations\.weight\.original0$", "weight_g"), (r"parametrizations\.weight\.original1$", "weight_v")]

# A class, its configuration, and the old names.
CASES = [
    ("BertForMaskedLM", SMALL, GAMMA),
    ("RobertaForMaskedLM", SMALL, GAMMA),
    ("Wav2Vec2ForCTC", SPEECH, NORM),
    ("HubertModel", SPEECH, NORM),
    ("WavLMModel", SPEECH, NORM),
]


def main():
    failed = 0
    for name, keys, rules in CASES:
        cls = getattr(transformers, name)
        torch.manual_seed(0)
        model = cls(cls.config_class(**keys))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            path = pathlib.Path(folder) / "model.safetensors"
            tensors = load_file(path)
            renamed = {}
            for key, tensor in tensors.items():
                for pattern, old in rules:
                    key = re.sub(pattern, old, key)
                renamed[key] = tensor
            changed = len(renamed.keys() - tensors.keys())
            save_file(renamed, path, metadata={"format": "pt"})
            _, info = cls.from_pretrained(folder, output_loading_info=True)
        missing, others = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
        print(name, "old names:", changed, "missing:", missing[:3], "mismatched:", others[:3], flush=True)
        failed += bool(missing or others or not changed)
    sys.exit(failed > 0)

if __name__ == "__main__":
    main()
