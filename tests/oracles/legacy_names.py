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

T5 = dict(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=2, vocab_size=96, relative_attention_num_buckets=8)
BART = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=96, max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
GPT = dict(n_embd=32, n_layer=2, n_head=2, n_positions=64, vocab_size=96)
MOE = dict(SMALL, num_key_value_heads=1, num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
BASE = [(r"^(model|transformer)\.", "")]
DOCUMENT = dict(SMALL, max_2d_position_embeddings=64)
# The only name of a shared embedding.
SHARED = [(r"(^|\.)shared\.", r"\1encoder.embed_tokens.")]
DECODER = [(r"(^|\.)shared\.", r"\1decoder.embed_tokens.")]
# The names that training programs dump.
IN_MEMORY = None

# A class, its configuration, and the old names.
CASES = [
    ("BertForMaskedLM", SMALL, GAMMA),
    ("RobertaForMaskedLM", SMALL, GAMMA),
    ("Wav2Vec2ForCTC", SPEECH, NORM),
    ("HubertModel", SPEECH, NORM),
    ("WavLMModel", SPEECH, NORM),
    ("ElectraForPreTraining", dict(SMALL, embedding_size=16), GAMMA),
    ("LongformerForMaskedLM", dict(SMALL, attention_window=[8, 8]), GAMMA),
    ("LayoutLMForMaskedLM", DOCUMENT, GAMMA),
    ("RoFormerForMaskedLM", dict(SMALL, embedding_size=32), GAMMA),
    ("Wav2Vec2ForCTC", dict(SPEECH, add_adapter=True, num_adapter_layers=1, output_hidden_size=24), NORM),
    ("GPT2LMHeadModel", GPT, BASE),
    ("BloomForCausalLM", dict(hidden_size=32, n_layer=2, n_head=2, vocab_size=96), BASE),
    ("OPTForCausalLM", dict(SMALL, ffn_dim=48, word_embed_proj_dim=32), BASE),
    *((name, T5, names) for name, names in [("T5ForConditionalGeneration", SHARED), ("T5ForConditionalGeneration", DECODER), ("T5EncoderModel", SHARED), ("MT5ForConditionalGeneration", SHARED)]),
    *((name, BART, names) for name in ("BartForConditionalGeneration", "MBartForConditionalGeneration", "PegasusForConditionalGeneration", "MarianMTModel", "M2M100ForConditionalGeneration") for names in (SHARED, DECODER)),
    *((name, MOE, IN_MEMORY) for name in ("Qwen3MoeForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM")),
    # Their loader splits matrices of files.
    *((name, SMALL, IN_MEMORY) for name in ("NomicBertForMaskedLM", "GteForMaskedLM")),
    ("VideoMAEForPreTraining", dict(SMALL, image_size=32, num_frames=4, decoder_hidden_size=32, decoder_num_attention_heads=2, decoder_num_hidden_layers=2, decoder_intermediate_size=64), IN_MEMORY),
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
            for key, tensor in (model.state_dict() if rules is IN_MEMORY else tensors).items():
                for pattern, old in rules or ():
                    key = re.sub(pattern, old, key)
                renamed[key] = tensor.clone()
            changed = len(renamed.keys() - tensors.keys())
            save_file(renamed, path, metadata={"format": "pt"})
            _, info = cls.from_pretrained(folder, output_loading_info=True)
        missing, others = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
        print(name, "old names:", changed, "missing:", missing[:3], "mismatched:", others[:3], flush=True)
        failed += bool(missing or others or not changed)
    sys.exit(failed > 0)

if __name__ == "__main__":
    main()
