#!/usr/bin/env python3
"""Writes fixtures of mixtures of experts whose names or configurations `transformers` does not write.

    tests/oracles/moe_names.py [FOLDER: fixtures/moe]

Needs Python 3.9 and nothing else. The format is that of `moe.py`. Each fixture lists groups of tensors: those that
every token uses, those of routed experts, and those of draft layers.
"""

import math
import pathlib
import sys

from fixture import ROOT
from moe import write

CASES = {}


def case(name, source):
    def register(build):
        CASES[name] = (source, build)
        return build

    return register


class Model:
    """A list of tensors with their share in the counts."""

    def __init__(self):
        self.tensors, self.total, self.active, self.draft, self.embedding, self.tables = [], 0, 0, 0, 0, 0
        self.is_upper_bound = False

    def add(self, name, shape, share=(1, 1), draft=False, dtype="BF16", counted=True, true=None):
        """Adds a tensor of which a token uses `share`. `true` is the count of a packed tensor."""
        self.tensors.append({"name": name, "dtype": dtype, "shape": shape})
        size = true or math.prod(shape)
        if not counted or not shape:
            return
        if draft:
            self.draft += size
            return
        self.total += size
        assert size * share[0] % share[1] == 0
        self.active += size * share[0] // share[1]
        if "per_layer" in name or "ngram" in name and "proj" not in name:
            self.tables += size
        elif "embed" in name and "proj" not in name:
            self.embedding = size

    def attention(self, prefix, h, draft=False):
        for part, shape in (("q_proj", [2 * h, h]), ("k_proj", [h // 2, h]), ("v_proj", [h // 2, h]), ("o_proj", [h, 2 * h])):
            self.add(f"{prefix}.self_attn.{part}.weight", shape, draft=draft)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            self.add(f"{prefix}.{norm}.weight", [h], draft=draft)

    def ends(self, h, vocabulary, prefix="model.", tied=False):
        self.add(f"{prefix}embed_tokens.weight", [vocabulary, h])
        self.add(f"{prefix}norm.weight", [h])
        if tied:
            self.embedding = 0
        else:
            self.add(f"{prefix.removesuffix('model.')}lm_head.weight", [vocabulary, h])

    def dense(self, prefix, h, size, draft=False, gate="gate_proj", up="up_proj", down="down_proj"):
        for part, shape in ((gate, [size, h]), (up, [size, h]), (down, [h, size])):
            self.add(f"{prefix}.{part}.weight", shape, draft=draft)

    def experts(self, prefix, h, size, experts, top_k, draft=False, names=("gate_proj", "up_proj", "down_proj"), router="gate"):
        """Adds a router and a list of experts."""
        self.add(f"{prefix}.{router}.weight", [experts, h], draft=draft)
        for expert in range(experts):
            for part, shape in zip(names, ([size, h], [size, h], [h, size])):
                self.add(f"{prefix}.experts.{expert}.{part}.weight", shape, (top_k, experts), draft)


def geometry(**rest):
    return {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 160, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "tie_word_embeddings": False, **rest}


@case("step3", "stepfun-ai/step3: modeling_step3.py")
def _(model):
    h, size, experts, top_k = 64, 48, 6, 3
    model.ends(h, 160)
    model.attention("model.layers.0", h)
    model.dense("model.layers.0.mlp", h, 200)
    model.attention("model.layers.1", h)
    model.add("model.layers.1.moe.gate.weight", [experts, h])
    for part, shape in (("gate_proj", [experts, size, h]), ("up_proj", [experts, size, h]), ("down_proj", [experts, h, size])):
        model.add(f"model.layers.1.moe.{part}.weight", shape, (top_k, experts))
    model.dense("model.layers.1.share_expert", h, 56)
    return {"model_type": "step3_vl", "architectures": ["Step3VLForConditionalGeneration"],
            "text_config": geometry(model_type="step3_text", moe_num_experts=experts, moe_top_k=top_k, moe_intermediate_size=size, share_expert_dim=56, moe_layers_enum="1", intermediate_size=200)}


@case("longcat-flash", "meituan-longcat/LongCat-Flash-Chat: modeling_longcat_flash.py")
def _(model):
    h, size, experts, top_k, zero = 64, 48, 8, 3, 4
    model.ends(h, 160)
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        for half in range(2):
            for part, shape in (("q_a_proj.weight", [24, h]), ("q_a_layernorm.weight", [24]), ("q_b_proj.weight", [96, 24]), ("kv_a_proj_with_mqa.weight", [40, h]), ("kv_a_layernorm.weight", [32]),
                                ("kv_b_proj.weight", [128, 32]), ("o_proj.weight", [h, 64])):
                model.add(f"{prefix}.self_attn.{half}.{part}", shape)
            model.dense(f"{prefix}.mlps.{half}", h, 144)
            model.add(f"{prefix}.input_layernorm.{half}.weight", [h])
            model.add(f"{prefix}.post_attention_layernorm.{half}.weight", [h])
        model.add(f"{prefix}.mlp.router.classifier.weight", [experts + zero, h])
        model.add(f"{prefix}.mlp.router.e_score_correction_bias", [experts + zero], dtype="F32")
        for expert in range(experts):
            for part, shape in (("gate_proj", [size, h]), ("up_proj", [size, h]), ("down_proj", [h, size])):
                model.add(f"{prefix}.mlp.experts.{expert}.{part}.weight", shape, (top_k, experts))
    config = geometry(model_type="longcat_flash", architectures=["LongcatFlashForCausalLM"], n_routed_experts=experts, zero_expert_num=zero, zero_expert_type="identity", moe_topk=top_k,
                      expert_ffn_hidden_size=size, ffn_hidden_size=144, num_layers=2)
    del config["num_hidden_layers"]
    model.is_upper_bound = True
    return config


def mlx(model, quantized, names):
    """Adds a Qwen3 MoE as MLX writes it: experts stacked in `switch_mlp`, dense layers packed with 4 bits."""
    h, size, experts, top_k = 64, 128, 8, 2

    def add(name, shape, share=(1, 1)):
        if not quantized:
            return model.add(f"{name}.weight", shape, share)
        *rest, i = shape
        model.add(f"{name}.weight", [*rest, i // 8], share, dtype="U32", true=math.prod(shape))
        model.add(f"{name}.scales", [*rest, i // 32], counted=False)
        model.add(f"{name}.biases", [*rest, i // 32], counted=False)

    add("model.embed_tokens", [160, h])
    model.embedding = 160 * h
    add("lm_head", [160, h])
    model.add("model.norm.weight", [h])
    prefix = "model.layers.0"
    for part, shape in (("q_proj", [2 * h, h]), ("k_proj", [32, h]), ("v_proj", [32, h]), ("o_proj", [h, 2 * h])):
        add(f"{prefix}.self_attn.{part}", shape)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        model.add(f"{prefix}.{norm}.weight", [h])
    block, router = names
    add(f"{prefix}.{router}", [experts, h])
    for part, shape in (("gate_proj", [experts, size, h]), ("up_proj", [experts, size, h]), ("down_proj", [experts, h, size])):
        add(f"{prefix}.{block}.switch_mlp.{part}", shape, (top_k, experts))
    return {"quantization": {"group_size": 32, "bits": 4, "mode": "affine"}} if quantized else {}, experts, top_k


@case("mlx-switch-mlp", "mlx_lm/models/qwen3_moe.py @ 0.32.2")
def _(model):
    rest, experts, top_k = mlx(model, False, ("mlp", "mlp.gate"))
    return geometry(model_type="qwen3_moe", num_hidden_layers=1, num_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=128, **rest)


@case("mlx-switch-mlp-4bit", "mlx_lm/models/qwen3_moe.py @ 0.32.2")
def _(model):
    rest, experts, top_k = mlx(model, True, ("mlp", "mlp.gate"))
    return geometry(model_type="qwen3_moe", num_hidden_layers=1, num_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=128, **rest)


@case("mlx-mixtral-4bit", "mlx_lm/models/mixtral.py @ 0.32.2")
def _(model):
    rest, experts, top_k = mlx(model, True, ("block_sparse_moe", "block_sparse_moe.gate"))
    return geometry(model_type="mixtral", num_hidden_layers=1, num_local_experts=experts, num_experts_per_tok=top_k, intermediate_size=128, **rest)


@case("mixtral-consolidated", "mistralai: consolidated.safetensors with params.json")
def _(model):
    h, size, experts, top_k = 64, 96, 4, 2
    model.add("tok_embeddings.weight", [160, h])
    model.embedding = 160 * h
    model.add("norm.weight", [h])
    model.add("output.weight", [160, h])
    for layer in range(2):
        prefix = f"layers.{layer}"
        for part, shape in (("wq", [128, h]), ("wk", [32, h]), ("wv", [32, h]), ("wo", [h, 128])):
            model.add(f"{prefix}.attention.{part}.weight", shape)
        model.add(f"{prefix}.attention_norm.weight", [h])
        model.add(f"{prefix}.ffn_norm.weight", [h])
        model.add(f"{prefix}.feed_forward.gate.weight", [experts, h])
        for expert in range(experts):
            for part, shape in (("w1", [size, h]), ("w2", [h, size]), ("w3", [size, h])):
                model.add(f"{prefix}.feed_forward.experts.{expert}.{part}.weight", shape, (top_k, experts))
    return {"params.json": {"dim": h, "n_layers": 2, "head_dim": 32, "hidden_dim": size, "n_heads": 4, "n_kv_heads": 1, "norm_eps": 1e-05, "vocab_size": 160,
                                         "moe": {"num_experts": experts, "num_experts_per_tok": top_k}}}


@case("mistral-large-3-consolidated", "mistralai: consolidated.safetensors with params.json")
def _(model):
    h, size, experts, top_k = 64, 32, 4, 2
    model.add("tok_embeddings.weight", [160, h])
    model.embedding = 160 * h
    model.add("norm.weight", [h])
    model.add("output.weight", [160, h])
    for layer in range(2):
        prefix = f"layers.{layer}"
        for part, shape in (("wq_a.weight", [24, h]), ("q_a_norm.weight", [24]), ("wq_b.weight", [96, 24]), ("wkv_a_with_mqa.weight", [40, h]), ("kv_a_norm.weight", [32]), ("wkv_b.weight", [128, 32]),
                            ("wo.weight", [h, 64])):
            model.add(f"{prefix}.attention.{part}", shape)
        model.add(f"{prefix}.attention_norm.weight", [h])
        model.add(f"{prefix}.ffn_norm.weight", [h])
        if layer == 0:
            model.dense(f"{prefix}.feed_forward", h, 144, gate="w1", up="w3", down="w2")
            continue
        model.add(f"{prefix}.gate.weight", [experts, h])
        model.dense(f"{prefix}.shared_experts", h, size, gate="w1", up="w3", down="w2")
        for expert in range(experts):
            for part, shape in (("w1", [size, h]), ("w2", [h, size]), ("w3", [size, h])):
                model.add(f"{prefix}.experts.{expert}.{part}.weight", shape, (top_k, experts))
    moe = {"num_experts": experts, "num_experts_per_tok": top_k, "num_shared_experts": 1, "expert_hidden_dim": size, "first_k_dense_replace": 1, "num_expert_groups": 1, "num_expert_groups_per_tok": 1}
    return {"params.json": {"dim": h, "n_layers": 2, "head_dim": 24, "hidden_dim": 144, "n_heads": 4, "n_kv_heads": 4, "vocab_size": 160, "moe": moe}}


@case("kimi-linear-remote-code", "moonshotai/Kimi-Linear-48B-A3B-Instruct: modeling_kimi.py")
def _(model):
    h, size, experts, top_k = 64, 32, 8, 2
    model.ends(h, 160)
    for layer in range(2):
        model.attention(f"model.layers.{layer}", h)
        if layer == 0:
            model.dense("model.layers.0.mlp", h, 144)
            continue
        prefix = f"model.layers.{layer}.block_sparse_moe"
        model.experts(prefix, h, size, experts, top_k, names=("w1", "w3", "w2"))
        model.add(f"{prefix}.gate.e_score_correction_bias", [experts])
        model.dense(f"{prefix}.shared_experts", h, size)
    return geometry(model_type="kimi_linear", architectures=["KimiLinearForCausalLM"], num_experts=experts, num_experts_per_token=top_k, num_shared_experts=1, moe_intermediate_size=size, first_k_dense_replace=1,
                    moe_layer_freq=1, intermediate_size=144)


@case("hunyuan-lists", "tencent/Hunyuan-A13B-Instruct: modeling_hunyuan.py")
def _(model):
    h, size, experts, top_k = 64, 32, 8, 2
    model.ends(h, 160)
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        model.attention(prefix, h)
        model.add(f"{prefix}.mlp.gate.wg.weight", [experts, h])
        for expert in range(experts):
            for part, shape in (("gate_proj", [size, h]), ("up_proj", [size, h]), ("down_proj", [h, size])):
                model.add(f"{prefix}.mlp.experts.{expert}.{part}.weight", shape, (top_k, experts))
        model.dense(f"{prefix}.mlp.shared_mlp", h, size)
    return geometry(model_type="hunyuan_v1_moe", architectures=["HunYuanMoEV1ForCausalLM"], num_experts=experts, moe_topk=[top_k, top_k], num_shared_expert=[1, 1], moe_intermediate_size=[size, size], use_mixed_mlp_moe=True)


@case("granite-input-linear", "ibm-granite/granite-3.0-1b-a400m: the format before transformers 5")
def _(model):
    h, size, experts, top_k = 64, 48, 8, 2
    model.ends(h, 160, tied=True)
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        model.attention(prefix, h)
        model.add(f"{prefix}.block_sparse_moe.input_linear.weight", [experts, 2 * size, h], (top_k, experts))
        model.add(f"{prefix}.block_sparse_moe.output_linear.weight", [experts, h, size], (top_k, experts))
        model.add(f"{prefix}.block_sparse_moe.router.layer.weight", [experts, h])
        model.add(f"{prefix}.shared_mlp.input_linear.weight", [2 * 56, h])
        model.add(f"{prefix}.shared_mlp.output_linear.weight", [h, 56])
    return geometry(model_type="granitemoeshared", architectures=["GraniteMoeSharedForCausalLM"], num_local_experts=experts, num_experts_per_tok=top_k, intermediate_size=size, shared_intermediate_size=56, tie_word_embeddings=True)


@case("longcat-flash-ngram", "meituan-longcat/LongCat-Flash-Lite: model.safetensors.index.json; mlx_lm/models/longcat_flash_ngram.py @ 0.32.2")
def _(model):
    h, size, experts, top_k, zero = 64, 48, 8, 3, 4
    model.add("model.embed_tokens.weight", [340, h])
    model.add("model.norm.weight", [h])
    model.add("lm_head.weight", [160, h])
    for table in range(4):
        model.add(f"model.ngram_embeddings.embedders.{table}.weight", [1601 + 2 * table, h // 4])
        model.add(f"model.ngram_embeddings.post_projs.{table}.weight", [h, h // 4])
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        model.attention(prefix, h)
        model.add(f"{prefix}.mlp.router.classifier.weight", [experts + zero, h])
        for expert in range(experts):
            for part, shape in (("gate_proj", [size, h]), ("up_proj", [size, h]), ("down_proj", [h, size])):
                model.add(f"{prefix}.mlp.experts.{expert}.{part}.weight", shape, (top_k, experts))
    model.is_upper_bound = True
    return geometry(model_type="longcat_flash_ngram", n_routed_experts=experts, zero_expert_num=zero, moe_topk=top_k, expert_ffn_hidden_size=size)


@case("grove-moe", "inclusionAI/GroveMoE-Inst: modeling_grove_moe.py")
def _(model):
    h, size, experts, top_k = 64, 48, 8, 2
    model.ends(h, 160)
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        model.attention(prefix, h)
        model.experts(f"{prefix}.mlp", h, size, experts, top_k)
        for expert in range(experts // 2):
            for part, shape in (("gate_proj", [32, h]), ("up_proj", [32, h]), ("down_proj", [h, 32])):
                model.add(f"{prefix}.mlp.chunk_experts.{expert}.{part}.weight", shape, (top_k, experts // 2))
    model.is_upper_bound = True
    return geometry(model_type="grove_moe", num_experts=experts, num_experts_per_tok=top_k, parallel_expert_num=2, moe_intermediate_size=size)


@case("gpt-oss-openai-names", "openai/gpt-oss-20b: original/model.safetensors; gpt_oss/torch/weights.py")
def _(model):
    h, size, experts, top_k = 64, 96, 8, 4
    model.add("embedding.weight", [160, h])
    model.embedding = 160 * h
    model.add("norm.scale", [h])
    model.add("unembedding.weight", [160, h])
    for layer in range(2):
        prefix = f"block.{layer}"
        for part, shape in (("norm.scale", [h]), ("qkv.weight", [192, h]), ("qkv.bias", [192]), ("sinks", [4]), ("out.weight", [h, 128]), ("out.bias", [h])):
            model.add(f"{prefix}.attn.{part}", shape)
        for part, shape in (("norm.scale", [h]), ("gate.weight", [experts, h]), ("gate.bias", [experts])):
            model.add(f"{prefix}.mlp.{part}", shape)
        for part, o, i in (("mlp1", 2 * size, h), ("mlp2", h, size)):
            model.add(f"{prefix}.mlp.{part}_weight.blocks", [experts, o, i // 32, 16], (top_k, experts), dtype="U8", true=experts * o * i)
            model.add(f"{prefix}.mlp.{part}_weight.scales", [experts, o, i // 32], dtype="U8", counted=False)
            model.add(f"{prefix}.mlp.{part}_bias", [experts, o], (top_k, experts))
    return {"num_hidden_layers": 2, "num_experts": experts, "experts_per_token": top_k, "vocab_size": 160, "hidden_size": h, "intermediate_size": size, "num_attention_heads": 4}


def unusual(name, tensors):
    """Registers a model whose experts have unusual names."""

    @case(name, "names of experts as published")
    def _(model):
        h, size, experts, top_k = 64, 32, 4, 2
        model.ends(h, 160)
        for layer in range(2):
            model.attention(f"model.layers.{layer}", h)
            for part, shape in tensors(h, size, experts):
                model.add(f"model.layers.{layer}.{part}", shape, (top_k, experts))
        return geometry(model_type="custom_moe", num_experts=experts, num_experts_per_tok=top_k)


def listed(prefix):
    return lambda h, size, experts: [(f"{prefix}.{expert}.{part}.weight", shape) for expert in range(experts) for part, shape in (("gate", [size, h]), ("up", [size, h]), ("down", [h, size]))]


unusual("experts-ffns", listed("ffns"))
unusual("experts-expert", listed("mlp.expert"))
unusual("experts-stacked-in-mlp", lambda h, size, experts: [("mlp.w1", [experts, 2 * size, h]), ("mlp.w2", [experts, h, size])])
unusual("experts-rows-in-moe-mlp", lambda h, size, experts: [("moe.mlp.w1", [experts * size, h]), ("moe.mlp.w2", [experts * size, h])])


def drafted(name, prefix, config):
    """Registers a model with one draft layer under a prefix."""

    @case(name, "names of draft layers as published")
    def _(model):
        h, size, experts, top_k = 64, 32, 8, 2
        model.ends(h, 160)
        for layer in range(2):
            model.attention(f"model.layers.{layer}", h)
            model.experts(f"model.layers.{layer}.mlp", h, size, experts, top_k)
        model.attention(prefix, h, draft=True)
        model.experts(f"{prefix}.mlp", h, size, experts, top_k, draft=True)
        model.add(f"{prefix}.eh_proj.weight", [h, 2 * h], draft=True)
        model.add(f"{prefix}.enorm.weight", [h], draft=True)
        model.add(f"{prefix}.hnorm.weight", [h], draft=True)
        return geometry(num_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=size, **config)


drafted("draft-model-mtp-layers", "model.mtp.layers.0", {"model_type": "mimo_v2_flash", "num_nextn_predict_layers": 1})
drafted("draft-model-mtp-layers-unstated", "model.mtp_layers.0", {"model_type": "mimo"})
drafted("draft-eagle", "eagle.layers.0", {"model_type": "deepseek_v3"})
drafted("draft-speculator", "speculator.layers.0", {"model_type": "deepseek_v3"})
drafted("draft-nextn-layers", "model.nextn_layers.0", {"model_type": "deepseek_v3"})
drafted("draft-mtp-layers", "mtp.layers.0", {"model_type": "qwen3_next"})
drafted("draft-next-layer", "model.layers.2", {"model_type": "glm4_moe", "num_nextn_predict_layers": 1})


@case("vision-layers-beyond-text-layers", "vision towers with more layers than the text model")
def _(model):
    h, size, experts, top_k = 64, 32, 8, 2
    model.ends(h, 160, "language_model.model.")
    for layer in range(2):
        model.attention(f"language_model.model.layers.{layer}", h)
        model.experts(f"language_model.model.layers.{layer}.mlp", h, size, experts, top_k)
    for layer in range(5):
        prefix = f"vision_tower.encoder.layers.{layer}"
        model.attention(prefix, 48)
        model.dense(f"{prefix}.mlp", 48, 96)
    model.add("multi_modal_projector.linear.weight", [h, 48])
    return {"model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"], "text_config": geometry(model_type="deepseek_v3", n_routed_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=size, num_nextn_predict_layers=0),
            "vision_config": {"model_type": "moonvit", "num_hidden_layers": 5, "hidden_size": 48}}


@case("moe-config-nested", "configurations with `moe_config`")
def _(model):
    h, size, experts, top_k = 64, 32, 8, 2
    model.ends(h, 160)
    model.attention("model.layers.0", h)
    model.experts("model.layers.0.mlp", h, size, experts, top_k)
    return geometry(model_type="custom_moe", num_hidden_layers=1, moe_config={"num_experts": experts, "top_k": top_k, "expert_hidden_size": size})


@case("language-config-nested", "deepseek-ai/deepseek-vl2: config.json")
def _(model):
    h, size, experts, top_k = 64, 32, 8, 2
    model.ends(h, 160, "language.model.")
    model.attention("language.model.layers.0", h)
    model.experts("language.model.layers.0.mlp", h, size, experts, top_k)
    return {"model_type": "deepseek_vl_v2", "language_config": geometry(model_type="deepseek_v2", num_hidden_layers=1, n_routed_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=size)}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fixtures" / "moe"
    for name, (source, build) in CASES.items():
        model = Model()
        config, files = build(model), None
        if "params.json" in config:
            config, files = None, config
        case = {"name": name, "written_by": f"definition: {source}", "total": model.total, "active": model.active, "active_without_lookup_tables": model.active - model.embedding - model.tables, "draft": model.draft}
        if model.is_upper_bound:
            case["active_is_upper_bound"] = True
        if config is not None:
            case["config"] = config
        if files:
            case["files"] = files
        write(folder, {**case, "tensors": sorted(model.tensors, key=lambda tensor: tensor["name"])})
    print(f"{len(CASES)} fixtures in {folder}")


if __name__ == "__main__":
    main()
