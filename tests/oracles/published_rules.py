"""The checkpoints of `published.py`: the keys of their configurations, and the habits of their writers.

`kinds` are the rows of the table of names, keys and classes that a loader accepts and a comparison has to know.
"""

CHECKPOINTS = []


def checkpoint(repo, names, config, stored=None, dtype="F32", kinds=(), **habits):
    """Adds a checkpoint. `names` are the architecture and the class in its configuration, `stored` the class of the weights."""
    model_type, _, architecture = names.partition(" ")
    keys = {"model_type": model_type, **({"architectures": [architecture]} if architecture else {}), **habits.pop("stated", {})}
    CHECKPOINTS.append({"repo": repo, "stored": stored or architecture, "config": config, "stated": keys, "dtype": dtype, "kinds": list(kinds), "metadata": {"format": "pt"}, **habits})


SIZES = {"tiny": (128, 2, 2, 512), "small": (512, 4, 8, 2048), "base": (768, 12, 12, 3072), "large": (1024, 24, 16, 4096)}


def encoder(size, **others):
    hidden, layers, heads, inner = SIZES[size]
    return {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner, **others}


GAMMA = [(r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta")]
NORM = [(r"parametrizations\.weight\.original0$", "weight_g"), (r"parametrizations\.weight\.original1$", "weight_v")]
IDS = {"embeddings.position_ids": ("I64", [1, 512])}
BERT = dict(max_position_embeddings=512, type_vocab_size=2)

# BERT as Google published it: the head of pre-training under a class without it, and TensorFlow's names.
for name, size, vocab in [("bert-base-uncased", "base", 30522), ("bert-large-uncased", "large", 30522), ("bert-base-cased", "base", 28996), ("bert-base-multilingual-cased", "base", 119547), ("bert-large-uncased-whole-word-masking", "large", 30522), ("bert-base-chinese", "base", 21128)]:
    checkpoint(f"google-bert/{name}", "bert BertForMaskedLM", encoder(size, vocab_size=vocab, **BERT), "BertForPreTraining", rename=GAMMA, kinds=["legacy names"])
checkpoint("google-bert/bert-base-uncased (pickle)", "bert BertForMaskedLM", encoder("base", vocab_size=30522, **BERT), "BertForPreTraining", rename=GAMMA, file="pytorch_model.bin",
           alias={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"}, kinds=["legacy names", "tied to a stored tensor"])
checkpoint("prajjwal1/bert-tiny", "bert", encoder("tiny", vocab_size=30522, **BERT), "BertForPreTraining", rename=GAMMA, kinds=["no architectures", "legacy names"])
checkpoint("google/bert_uncased_L-4_H-512_A-8", "bert", encoder("small", vocab_size=30522, **BERT), "BertForPreTraining", kinds=["no architectures"])
checkpoint("allenai/scibert_scivocab_uncased", "bert", encoder("base", vocab_size=31090, **BERT), "BertForPreTraining", file="pytorch_model.bin", kinds=["no architectures"])
checkpoint("dslim/bert-base-NER", "bert BertForTokenClassification", encoder("base", vocab_size=28996, id2label={str(n): f"L{n}" for n in range(9)}, **BERT))
checkpoint("nlptown/bert-base-multilingual-uncased-sentiment", "bert BertForSequenceClassification", encoder("base", vocab_size=105879, id2label={str(n): f"{n} stars" for n in range(5)}, **BERT), add=IDS and {"bert.embeddings.position_ids": IDS["embeddings.position_ids"]})
checkpoint("deepset/bert-base-cased-squad2", "bert BertForQuestionAnswering", encoder("base", vocab_size=28996, **BERT))
checkpoint("sentence-transformers/all-MiniLM-L6-v2", "bert BertModel", {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536, "vocab_size": 30522, **BERT}, files={"modules.json": []}, add=IDS, kinds=["base weights"])
checkpoint("BAAI/bge-base-en-v1.5", "bert BertModel", encoder("base", vocab_size=30522, **BERT), files={"modules.json": []}, add=IDS)
checkpoint("intfloat/e5-large-v2", "bert BertModel", encoder("large", vocab_size=30522, **BERT), files={"modules.json": []})

# An adapter per task inside of each matrix, as `torch.nn.utils.parametrize` stores it.
JINA = {f"roberta.encoder.layers.#.{module}.parametrizations.weight.{part}": ("BF16", shape) for module, rows, columns in [("mixer.Wqkv", 3072, 1024), ("mixer.out_proj", 1024, 1024), ("mlp.fc1", 4096, 1024), ("mlp.fc2", 1024, 4096)]
        for part, shape in [("original", [rows, columns]), ("0.lora_A", [5, 4, columns]), ("0.lora_B", [5, rows, 4])]}
JINA |= {f"roberta.encoder.layers.#.{module}.bias": ("BF16", [rows]) for module, rows in [("mixer.Wqkv", 3072), ("mixer.out_proj", 1024), ("mlp.fc1", 4096), ("mlp.fc2", 1024), ("norm1", 1024), ("norm2", 1024)]}
JINA |= {f"roberta.encoder.layers.#.{module}.weight": ("BF16", [1024]) for module in ("norm1", "norm2")} | {f"roberta.emb_ln.{part}": ("BF16", [1024]) for part in ("weight", "bias")}
JINA |= {"roberta.embeddings.token_type_embeddings.parametrizations.weight.original": ("BF16", [1, 1024]), "roberta.embeddings.word_embeddings.parametrizations.weight.original": ("BF16", [250002, 1024]), "roberta.pooler.dense.bias": ("BF16", [1024]),
         "roberta.embeddings.word_embeddings.parametrizations.weight.0.lora_A": ("BF16", [5, 250002, 4]), "roberta.embeddings.word_embeddings.parametrizations.weight.0.lora_B": ("BF16", [5, 4, 1024]), "roberta.pooler.dense.parametrizations.weight.original": ("BF16", [1024, 1024])}
checkpoint("jinaai/jina-embeddings-v3", "xlm-roberta XLMRobertaModel", encoder("large", vocab_size=250002, max_position_embeddings=8194, type_vocab_size=1), add=JINA, layers=24, drop=[r"^(?!roberta)"], files={"modules.json": []}, stated={"auto_map": {"AutoModel": "modeling_lora.XLMRobertaLoRA"}}, kinds=["adapters inside a model"])

# RoBERTa and its relatives.
ROBERTA = dict(max_position_embeddings=514, type_vocab_size=1)
checkpoint("FacebookAI/roberta-base", "roberta RobertaForMaskedLM", encoder("base", vocab_size=50265, **ROBERTA))
checkpoint("FacebookAI/roberta-large (pickle)", "roberta RobertaForMaskedLM", encoder("large", vocab_size=50265, **ROBERTA), file="pytorch_model.bin", alias={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}, kinds=["tied to a stored tensor"])
checkpoint("distilbert/distilroberta-base", "roberta RobertaForMaskedLM", encoder("base", vocab_size=50265, **ROBERTA) | {"num_hidden_layers": 6})
checkpoint("deepset/roberta-base-squad2", "roberta", encoder("base", vocab_size=50265, **ROBERTA), "RobertaForQuestionAnswering", kinds=["no architectures"])
checkpoint("cardiffnlp/twitter-roberta-base-sentiment", "roberta RobertaForSequenceClassification", encoder("base", vocab_size=50265, id2label={str(n): f"LABEL_{n}" for n in range(3)}, **ROBERTA))
checkpoint("FacebookAI/xlm-roberta-base", "xlm-roberta XLMRobertaForMaskedLM", encoder("base", vocab_size=250002, **ROBERTA))
checkpoint("FacebookAI/xlm-roberta-large", "xlm-roberta XLMRobertaForMaskedLM", encoder("large", vocab_size=250002, **ROBERTA))
checkpoint("BAAI/bge-m3", "xlm-roberta XLMRobertaModel", encoder("large", vocab_size=250002, max_position_embeddings=8194, type_vocab_size=1), file="pytorch_model.bin", files={"modules.json": []})
checkpoint("intfloat/multilingual-e5-large", "xlm-roberta XLMRobertaModel", encoder("large", vocab_size=250002, **ROBERTA), dtype="F16", files={"modules.json": []})
checkpoint("almanach/camembert-base", "camembert CamembertForMaskedLM", encoder("base", vocab_size=32005, **ROBERTA))
checkpoint("example/camembert-causal", "camembert CamembertForCausalLM", encoder("base", vocab_size=32005, is_decoder=True, **ROBERTA), drop=[r"lm_head\.decoder\.bias"], kinds=["an option of the configuration"])
checkpoint("sentence-transformers/all-mpnet-base-v2", "mpnet MPNetForMaskedLM", encoder("base", vocab_size=30527, max_position_embeddings=514, relative_attention_num_buckets=32), "MPNetModel", files={"modules.json": []}, add=IDS | {"embeddings.position_ids": ("I64", [1, 514])}, kinds=["base weights"])
checkpoint("microsoft/mpnet-base", "mpnet MPNetForMaskedLM", encoder("base", vocab_size=30527, max_position_embeddings=514, relative_attention_num_buckets=32))
checkpoint("distilbert/distilbert-base-uncased", "distilbert DistilBertForMaskedLM", {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522, "max_position_embeddings": 512})
checkpoint("distilbert/distilbert-base-uncased-finetuned-sst-2-english", "distilbert DistilBertForSequenceClassification", {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522, "max_position_embeddings": 512, "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}})
checkpoint("albert/albert-base-v2", "albert AlbertForMaskedLM", encoder("base", vocab_size=30000, embedding_size=128, num_hidden_groups=1, inner_group_num=1, **BERT))
checkpoint("google/electra-base-discriminator", "electra ElectraForPreTraining", encoder("base", vocab_size=30522, embedding_size=768, **BERT), kinds=["a key that is missing"])
checkpoint("google/electra-small-discriminator", "electra ElectraForPreTraining", {"hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 1024, "embedding_size": 128, "vocab_size": 30522, **BERT})
DEBERTA = dict(relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", max_relative_positions=-1, position_biased_input=False, type_vocab_size=0, max_position_embeddings=512)
checkpoint("microsoft/deberta-v3-base", "deberta-v2", encoder("base", vocab_size=128100, **DEBERTA), "DebertaV2Model", file="pytorch_model.bin", dtype="F16", rename=[(r"^", "deberta.")], kinds=["no architectures"])
checkpoint("microsoft/deberta-v3-large", "deberta-v2", encoder("large", vocab_size=128100, **DEBERTA), "DebertaV2Model", file="pytorch_model.bin", dtype="F16", rename=[(r"^", "deberta.")], kinds=["no architectures"])
checkpoint("cross-encoder/nli-deberta-v3-base", "deberta-v2 DebertaV2ForSequenceClassification", encoder("base", vocab_size=128100, pooler_hidden_size=768, id2label={"0": "contradiction", "1": "entailment", "2": "neutral"}, **DEBERTA))
checkpoint("answerdotai/ModernBERT-base", "modernbert ModernBertForMaskedLM", {"hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152, "vocab_size": 50368})
checkpoint("google/canine-s", "canine CanineModel", encoder("base", max_position_embeddings=16384, type_vocab_size=16))

# Decoders.
for name, (width, layers, heads) in {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20)}.items():
    checkpoint(f"openai-community/{name}", "gpt2 GPT2LMHeadModel", {"n_embd": width, "n_layer": layers, "n_head": heads, "n_ctx": 1024, "n_positions": 1024, "vocab_size": 50257}, "GPT2Model", layers=layers, add={"h.#.attn.bias": ("F32", [1, 1, 1024, 1024])})
checkpoint("distilbert/distilgpt2", "gpt2 GPT2LMHeadModel", {"n_embd": 768, "n_layer": 6, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}, layers=6, add={"transformer.h.#.attn.bias": ("F32", [1, 1, 1024, 1024])})
checkpoint("EleutherAI/pythia-160m", "gpt_neox GPTNeoXForCausalLM", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50304}, dtype="F16", layers=12, rename=[("^lm_head", "embed_out")],
           add={"gpt_neox.layers.#.attention.bias": ("BOOL", [1, 1, 2048, 2048]), "gpt_neox.layers.#.attention.masked_bias": ("F16", []), "gpt_neox.layers.#.attention.rotary_emb.inv_freq": ("F32", [8])})
checkpoint("EleutherAI/gpt-neo-125m", "gpt_neo GPTNeoForCausalLM", {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]], "attention_layers": ["global", "local"] * 6, "vocab_size": 50257, "max_position_embeddings": 2048, "window_size": 256},
           layers=12, add={"transformer.h.#.attn.attention.bias": ("U8", [1, 1, 2048, 2048]), "transformer.h.#.attn.attention.masked_bias": ("F32", [])}, kinds=["masks"])
checkpoint("Salesforce/codegen-350M-mono", "codegen CodeGenForCausalLM", {"n_embd": 1024, "n_layer": 20, "n_head": 16, "rotary_dim": 32, "n_positions": 2048, "n_ctx": 2048, "vocab_size": 51200}, dtype="F16", layers=20, file="pytorch_model.bin", add={"transformer.h.#.attn.causal_mask": ("U8", [1, 1, 2048, 2048])}, kinds=["masks"])
checkpoint("facebook/opt-125m", "opt OPTForCausalLM", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072, "vocab_size": 50272, "word_embed_proj_dim": 768, "max_position_embeddings": 2048}, dtype="F16", rename=[("^model.decoder", "decoder")], file="pytorch_model.bin")
checkpoint("facebook/opt-350m", "opt OPTForCausalLM", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096, "vocab_size": 50272, "word_embed_proj_dim": 512, "do_layer_norm_before": False, "max_position_embeddings": 2048}, dtype="F16", rename=[("^model.decoder", "decoder")], file="pytorch_model.bin")
checkpoint("bigscience/bloom-560m", "bloom BloomForCausalLM", {"hidden_size": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880}, "BloomModel", dtype="F16")
checkpoint("tiiuae/falcon-7b", "falcon FalconForCausalLM", {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True, "bias": False, "alibi": False, "vocab_size": 65024}, dtype="BF16", add={"lm_head.weight": ("BF16", [65024, 4544])})


def llama(hidden, layers, heads, kv, inner, vocab, **others):
    return {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": inner, "vocab_size": vocab, **others}


INV = lambda layers, size: {"layers": layers, "add": {"model.layers.#.self_attn.rotary_emb.inv_freq": ("F32", [size])}}
checkpoint("meta-llama/Llama-2-7b-hf", "llama LlamaForCausalLM", llama(4096, 32, 32, 32, 11008, 32000, tie_word_embeddings=False), dtype="F16", **INV(32, 64))
checkpoint("huggyllama/llama-7b", "llama LlamaForCausalLM", llama(4096, 32, 32, 32, 11008, 32000, tie_word_embeddings=False), dtype="F16", unstated=["num_key_value_heads"], kinds=["a key that is missing"], **INV(32, 64))
checkpoint("meta-llama/Meta-Llama-3-8B", "llama LlamaForCausalLM", llama(4096, 32, 32, 8, 14336, 128256, tie_word_embeddings=False, attention_bias=False), dtype="BF16")
checkpoint("meta-llama/Llama-3.2-1B", "llama LlamaForCausalLM", llama(2048, 16, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True, attention_bias=False, mlp_bias=False), dtype="BF16")
checkpoint("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama LlamaForCausalLM", llama(2048, 22, 32, 4, 5632, 32000, tie_word_embeddings=False, attention_bias=False), dtype="BF16")
checkpoint("mistralai/Mistral-7B-v0.1", "mistral MistralForCausalLM", llama(4096, 32, 32, 8, 14336, 32000, sliding_window=4096, tie_word_embeddings=False), dtype="BF16")
checkpoint("mistralai/Mixtral-8x7B-v0.1", "mixtral MixtralForCausalLM", llama(4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False), dtype="BF16")
checkpoint("Qwen/Qwen2.5-0.5B", "qwen2 Qwen2ForCausalLM", llama(896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True), dtype="BF16")
checkpoint("Qwen/Qwen2.5-7B-Instruct", "qwen2 Qwen2ForCausalLM", llama(3584, 28, 28, 4, 18944, 152064, tie_word_embeddings=False), dtype="BF16")
checkpoint("Qwen/Qwen3-0.6B", "qwen3 Qwen3ForCausalLM", llama(1024, 28, 16, 8, 3072, 151936, head_dim=128, attention_bias=False, tie_word_embeddings=True), dtype="BF16", add={"lm_head.weight": ("BF16", [151936, 1024])})
checkpoint("Qwen/Qwen3-Embedding-0.6B", "qwen3 Qwen3ForCausalLM", llama(1024, 28, 16, 8, 3072, 151669, head_dim=128, attention_bias=False, tie_word_embeddings=True), "Qwen3Model", dtype="BF16", files={"modules.json": []}, kinds=["base weights"])
checkpoint("Qwen/Qwen3-Embedding-8B", "qwen3 Qwen3ForCausalLM", llama(4096, 36, 32, 8, 12288, 151665, head_dim=128, attention_bias=False, tie_word_embeddings=False), "Qwen3Model", dtype="BF16", files={"modules.json": []}, kinds=["base weights"])
checkpoint("Alibaba-NLP/gte-Qwen2-1.5B-instruct", "qwen2 Qwen2ForCausalLM", llama(1536, 28, 12, 2, 8960, 151646, tie_word_embeddings=False), "Qwen2Model", files={"modules.json": []}, stated={"auto_map": {"AutoModel": "modeling_qwen.Qwen2Model"}}, kinds=["base weights"])
checkpoint("NovaSearch/stella_en_1.5B_v5", "qwen2 Qwen2ForCausalLM", llama(1536, 28, 12, 2, 8960, 151646, tie_word_embeddings=False), "Qwen2Model", files={"modules.json": []}, kinds=["base weights"])
checkpoint("Qwen/Qwen3-30B-A3B", "qwen3_moe Qwen3MoeForCausalLM", llama(2048, 48, 32, 4, 6144, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False, tie_word_embeddings=False), dtype="BF16")
checkpoint("google/gemma-2b", "gemma GemmaForCausalLM", llama(2048, 18, 8, 1, 16384, 256000, head_dim=256), dtype="BF16")
checkpoint("google/gemma-2-2b", "gemma2 Gemma2ForCausalLM", llama(2304, 26, 8, 4, 9216, 256000, head_dim=256), dtype="F32")
checkpoint("google/gemma-3-1b-it", "gemma3_text Gemma3ForCausalLM", llama(1152, 26, 4, 1, 6912, 262144, head_dim=256), dtype="BF16")
checkpoint("microsoft/phi-2", "phi PhiForCausalLM", llama(2560, 32, 32, 32, 10240, 51200, tie_word_embeddings=False), dtype="F16")
checkpoint("microsoft/Phi-3-mini-4k-instruct", "phi3 Phi3ForCausalLM", llama(3072, 32, 32, 32, 8192, 32064, tie_word_embeddings=False, attention_bias=False, pad_token_id=32000), dtype="BF16", stated={"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}})
checkpoint("bigcode/starcoder2-3b", "starcoder2 Starcoder2ForCausalLM", llama(3072, 30, 24, 2, 12288, 49152), dtype="F32")
checkpoint("stabilityai/stablelm-2-1_6b", "stablelm StableLmForCausalLM", llama(2048, 24, 32, 32, 5632, 100352, use_qkv_bias=True, tie_word_embeddings=False), dtype="F16")
checkpoint("allenai/OLMo-2-1124-7B", "olmo2 Olmo2ForCausalLM", llama(4096, 32, 32, 32, 11008, 100352, tie_word_embeddings=False, attention_bias=False), dtype="F32")
checkpoint("allenai/OLMoE-1B-7B-0924", "olmoe OlmoeForCausalLM", llama(2048, 16, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8, tie_word_embeddings=False), dtype="BF16")
checkpoint("HuggingFaceTB/SmolLM2-135M", "llama LlamaForCausalLM", llama(576, 30, 9, 3, 1536, 49152, tie_word_embeddings=True, attention_bias=False), dtype="BF16")
checkpoint("ibm-granite/granite-3.1-2b-base", "granite GraniteForCausalLM", llama(2048, 40, 32, 8, 8192, 49152, tie_word_embeddings=True, attention_bias=False), dtype="BF16")
checkpoint("state-spaces/mamba-130m-hf", "mamba MambaForCausalLM", {"hidden_size": 768, "num_hidden_layers": 24, "state_size": 16, "conv_kernel": 4, "expand": 2, "intermediate_size": 1536, "time_step_rank": 48, "vocab_size": 50280, "use_bias": False, "use_conv_bias": True})
checkpoint("deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2 DeepseekV2ForCausalLM", llama(2048, 27, 16, 16, 10944, 102400, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, attention_bias=False, tie_word_embeddings=False), dtype="BF16", stated={"auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM"}})
# The last layer drafts tokens, and is not in the class.
R1 = {f"model.layers.61.{name}": ("BF16", shape) for name, shape in {"embed_tokens.weight": [129280, 7168], "enorm.weight": [7168], "hnorm.weight": [7168], "eh_proj.weight": [7168, 14336], "shared_head.norm.weight": [7168], "shared_head.head.weight": [129280, 7168],
      "input_layernorm.weight": [7168], "post_attention_layernorm.weight": [7168], "self_attn.q_a_layernorm.weight": [1536], "self_attn.kv_a_layernorm.weight": [512], "mlp.gate.weight": [256, 7168]}.items()}
R1["model.layers.61.mlp.gate.e_score_correction_bias"] = ("F32", [256])
for name, rows, columns in [("self_attn.q_a_proj", 1536, 7168), ("self_attn.q_b_proj", 24576, 1536), ("self_attn.kv_a_proj_with_mqa", 576, 7168), ("self_attn.kv_b_proj", 32768, 512), ("self_attn.o_proj", 7168, 16384)] + [
        (f"mlp.{part}.{matrix}", *shape) for part in ["shared_experts"] + [f"experts.{number}" for number in range(256)] for matrix, shape in [("gate_proj", (2048, 7168)), ("up_proj", (2048, 7168)), ("down_proj", (7168, 2048))]]:
    R1 |= {f"model.layers.61.{name}.weight": ("F8_E4M3", [rows, columns]), f"model.layers.61.{name}.weight_scale_inv": ("F32", [-(-rows // 128), -(-columns // 128)])}
checkpoint("deepseek-ai/DeepSeek-R1", "deepseek_v3 DeepseekV3ForCausalLM", llama(7168, 61, 128, 128, 18432, 129280, kv_lora_rank=512, q_lora_rank=1536, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, n_group=8, topk_group=4, attention_bias=False, tie_word_embeddings=False),
           dtype="BF16", quantizer=("fp8",), plain=("lm_head", r"mlp\.gate$"), also_packed=[r"mlp\.experts\.\d+\.(gate|up|down)_proj$"], add=R1, kinds=["a module with its own recipe"],
           stated={"num_nextn_predict_layers": 1, "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}, "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}})
checkpoint("openai/gpt-oss-20b in BF16", "gpt_oss GptOssForCausalLM", llama(2880, 24, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4, tie_word_embeddings=False, attention_bias=True), dtype="BF16")
checkpoint("openai/gpt-oss-20b", "gpt_oss GptOssForCausalLM", llama(2880, 24, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4, tie_word_embeddings=False, attention_bias=True), dtype="BF16", kinds=["numbers of shards that begin at 0"], layers=24, drop=[r"experts\.(gate_up|down)_proj$"],
           add={f"model.layers.#.mlp.experts.{name}_{part}": ("U8", [32, rows, 90, *rest]) for name, rows in (("gate_up_proj", 5760), ("down_proj", 2880)) for part, rest in (("blocks", [16]), ("scales", []))},
           stated={"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}})

# The names of models in memory, which training programs store, and whose loader joins or splits the matrices of files.
checkpoint("example/nomic-bert from memory", "nomic_bert NomicBertForMaskedLM", encoder("tiny", vocab_size=30528, type_vocab_size=2), in_memory=True, kinds=["other writers"])
checkpoint("example/gte from memory", "gte GteForMaskedLM", encoder("tiny", vocab_size=30528, type_vocab_size=2), in_memory=True, kinds=["other writers"])
checkpoint("example/videomae from memory", "videomae VideoMAEForPreTraining", encoder("tiny", image_size=32, patch_size=16, num_frames=4, decoder_hidden_size=64, decoder_num_attention_heads=2, decoder_num_hidden_layers=2, decoder_intermediate_size=128), in_memory=True, kinds=["other writers"])
checkpoint("example/olmo-hybrid from memory", "olmo_hybrid OlmoHybridForCausalLM", llama(128, 4, 4, 4, 256, 1000, pad_token_id=0, bos_token_id=1, eos_token_id=2), in_memory=True, kinds=["other writers"])
# The class is GLM's, and the names are not.
checkpoint("example/sarvam-moe", "sarvam_moe Glm4MoeForCausalLM", llama(128, 4, 4, 2, 256, 1000, head_dim=32, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, use_qk_norm=True), layers=4, drop=[r"\.self_attn\.[qkv]_proj"],
           rename=[("embed_tokens", "word_embeddings"), (r"self_attn\.o_proj", "attention.dense"), (r"self_attn\.q_norm", "attention.query_layernorm"), (r"self_attn\.k_norm", "attention.key_layernorm"), ("e_score_correction_bias", "expert_bias")],
           add={"model.layers.#.attention.query_key_value.weight": ("F32", [256, 128])}, kinds=["the class is not the one of `model_type`"])
# The names and shapes of `convert_hf_to_gguf.py` in llama.cpp: biases without a weight, and vectors as matrices.
BLOCK = [(r"^(model|backbone)\.layers\.", "blk."), (r"^(model\.norm|backbone\.norm_f)\.", "output_norm."), (r"^(model\.embed_tokens|backbone\.embeddings)\.", "token_embd."), (r"^lm_head\.", "output.")]
TOKENIZER = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": "(2 texts)"}
checkpoint("example/mamba2-130m in GGUF", "mamba2 Mamba2ForCausalLM", {"hidden_size": 768, "num_hidden_layers": 24, "state_size": 128, "expand": 2, "head_dim": 64, "num_heads": 24, "n_groups": 1, "conv_kernel": 4, "vocab_size": 50288, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings": True}, file="mamba2-130m-F32.gguf",
           rename=[*BLOCK, (r"\.mixer\.dt_bias$", ".ssm_dt.bias"), (r"\.mixer\.A_log$", ".ssm_a"), (r"\.mixer\.D$", ".ssm_d"), (r"\.mixer\.(norm|conv1d)\.", r".ssm_\1."), (r"\.mixer\.(in|out)_proj\.", r".ssm_\1."), (r"^(blk\.\d+)\.norm\.", r"\1.attn_norm.")],
           reshape=[(r"ssm_conv1d\.weight$", [1792, 4]), (r"ssm_conv1d\.bias$", [1, 1792]), (r"ssm_[ad]$", [24, 1]), (r"ssm_norm\.weight$", [1, 1536])], kinds=["GGUF"],
           metadata={"general.architecture": "mamba2", **{f"mamba2.{key}": str(value) for key, value in {"block_count": 24, "context_length": 1048576, "embedding_length": 768, "feed_forward_length": 0, "attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-05, "ssm.conv_kernel": 4, "ssm.inner_size": 1536, "ssm.state_size": 128, "ssm.time_step_rank": 24, "ssm.group_count": 1, "vocab_size": 50288}.items()}, **TOKENIZER})
checkpoint("example/GLM-4.5-Air in GGUF without draft layers", "glm4_moe Glm4MoeForCausalLM", llama(4096, 46, 96, 8, 10944, 151552, head_dim=128, moe_intermediate_size=1408, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, n_group=1, topk_group=1, attention_bias=True, use_qk_norm=False, tie_word_embeddings=False), file="GLM-4.5-Air-BF16.gguf", dtype="BF16", in_memory=True,
           rename=[*BLOCK, (r"\.input_layernorm\.", ".attn_norm."), (r"\.post_attention_layernorm\.", ".post_attention_norm."), (r"\.self_attn\.([qkv])_proj\.", r".attn_\1."), (r"\.self_attn\.o_proj\.", ".attn_output."), (r"\.mlp\.gate\.weight$", ".ffn_gate_inp.weight"), (r"\.mlp\.gate\.e_score_correction_bias$", ".exp_probs_b.bias"),
                   (r"\.mlp\.experts\.(gate_up|down)_proj$", r".ffn_\1_exps.weight"), (r"\.mlp\.shared_experts\.(gate|up|down)_proj\.", r".ffn_\1_shexp."), (r"\.mlp\.(gate|up|down)_proj\.", r".ffn_\1.")],
           split=[("ffn_gate_up_exps", ("ffn_gate_exps", "ffn_up_exps"))], kinds=["GGUF"],
           metadata={"general.architecture": "glm4moe", **{f"glm4moe.{key}": str(value) for key, value in {"block_count": 46, "context_length": 131072, "embedding_length": 4096, "feed_forward_length": 10944, "attention.head_count": 96, "attention.head_count_kv": 8, "attention.key_length": 128, "attention.value_length": 128, "attention.layer_norm_rms_epsilon": 1e-05, "rope.dimension_count": 64, "rope.freq_base": 1000000, "expert_count": 128, "expert_used_count": 8, "expert_shared_count": 1, "expert_feed_forward_length": 1408, "expert_gating_func": 2, "expert_group_count": 1, "expert_group_used_count": 1, "leading_dense_block_count": 1, "vocab_size": 151552}.items()}, **TOKENIZER})

# Packed weights.
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"}
TINY = llama(2048, 22, 32, 4, 5632, 32000, tie_word_embeddings=False)
for method, recipe in {
    ("gptq", 4, 128): {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
    ("gptq", 8, 32): {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": True, "sym": True},
    ("awq", 4, 128): {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
    ("fp8",): FP8,
    ("fp8-channel",): {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}, "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}}}},
    ("w4a16", 4, 128): {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": False}}}},
    ("nvfp4",): {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}, "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}}}},
    ("nf4",): {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": ["lm_head"]},
    ("int8",): {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]},
    ("exl3", 4): {"quant_method": "exl3", "bits": 4.0, "head_bits": 6, "version": "0.0.1"},
}.items():
    habits = dict(own=[("lm_head", ("exl3", 6))], plain=[]) if method[0] == "exl3" else {}
    checkpoint(f"example/TinyLlama in {'-'.join(map(str, method))}", "llama LlamaForCausalLM", TINY, dtype="F16", quantizer=method, kinds=["a module with its own recipe"] if habits else [], stated={"quantization_config": recipe}, **habits)
checkpoint("example/TinyLlama in fp8, named as DeepSeek-V4", "llama LlamaForCausalLM", TINY, dtype="F16", quantizer=("fp8",), kinds=["other writers"], rename=[(r"weight_scale_inv$", "scale")], stated={"quantization_config": FP8})
SKIPPED = [f"model.layers.{n}.mlp.{m}" for n in (3,) for m in ("gate_proj", "up_proj", "down_proj")]
checkpoint("example/TinyLlama in nf4, one layer plain", "llama LlamaForCausalLM", TINY, dtype="BF16", quantizer=("nf4",), plain=["lm_head", r"layers\.3\.mlp"], kinds=["a module with its own recipe"],
           stated={"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": ["lm_head", *SKIPPED]}})
checkpoint("example/TinyLlama in GPTQ with rules", "llama LlamaForCausalLM", TINY, dtype="F16", quantizer=("gptq", 4, 128), own=[(r"layers\.\d+\.mlp\.down_proj", ("gptq", 8, 32))], plain=["lm_head", r"layers\.0\."], kinds=["a module with its own recipe"],
           stated={"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "dynamic": {r"+:.*\.down_proj": {"bits": 8, "group_size": 32}, r"-:model\.layers\.0\..*": {}}}})
checkpoint("mlx-community/Llama-3.2-1B-4bit", "llama LlamaForCausalLM", llama(2048, 16, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True), dtype="BF16", quantizer=("mlx", 4, 64), also_packed=["embed_tokens"], plain=[], metadata={"format": "mlx"},
           stated={"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {"group_size": 64, "bits": 4}}, kinds=["other writers"])

# Encoders with decoders.
T5 = dict(vocab_size=32128, d_kv=64, relative_attention_num_buckets=32)
for name, width, inner, layers, heads in [("t5-small", 512, 2048, 6, 8), ("t5-base", 768, 3072, 12, 12)]:
    checkpoint(f"google-t5/{name}", "t5 T5ForConditionalGeneration", dict(T5, d_model=width, d_ff=inner, num_layers=layers, num_heads=heads), unstated=["num_decoder_layers"], drop=[r"coder\.embed_tokens", "lm_head"], kinds=["a key that is missing"])
GATED = dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
for name, width, inner, layers, heads in [("flan-t5-small", 512, 1024, 8, 6), ("flan-t5-base", 768, 2048, 12, 12), ("flan-t5-large", 1024, 2816, 24, 16)]:
    checkpoint(f"google/{name}", "t5 T5ForConditionalGeneration", dict(GATED, d_model=width, d_ff=inner, num_layers=layers, num_decoder_layers=layers, num_heads=heads), add={} if "small" in name else {}, kinds=["a key that is missing"], drop=[r"coder\.embed_tokens"])
checkpoint("google/t5-v1_1-base", "t5 T5ForConditionalGeneration", dict(GATED, d_model=768, d_ff=2048, num_layers=12, num_decoder_layers=12, num_heads=12), drop=[r"coder\.embed_tokens"], file="pytorch_model.bin", kinds=["a key that is missing"])
checkpoint("google/byt5-small", "t5 T5ForConditionalGeneration", dict(GATED, vocab_size=384, d_model=1472, d_ff=3584, num_layers=12, num_decoder_layers=4, num_heads=6), drop=[r"coder\.embed_tokens"], file="pytorch_model.bin", kinds=["a key that is missing"])
checkpoint("google/mt5-small", "mt5 MT5ForConditionalGeneration", dict(GATED, vocab_size=250112, d_model=512, d_ff=1024, num_layers=8, num_decoder_layers=8, num_heads=6), drop=[r"coder\.embed_tokens"], file="pytorch_model.bin")
checkpoint("google/long-t5-tglobal-base", "longt5 LongT5ForConditionalGeneration", dict(GATED, d_model=768, d_ff=2048, num_layers=12, num_decoder_layers=12, num_heads=12, encoder_attention_type="transient-global", local_radius=127, global_block_size=16), drop=[r"coder\.embed_tokens"], kinds=["a key that is missing"])
BART = dict(d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=50265, max_position_embeddings=1024)
checkpoint("facebook/bart-base", "bart BartModel", BART)
checkpoint("facebook/bart-large-mnli", "bart BartForSequenceClassification", dict(BART, d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, id2label={"0": "contradiction", "1": "neutral", "2": "entailment"}))
checkpoint("facebook/bart-large-cnn", "bart BartForConditionalGeneration", dict(BART, vocab_size=50264, d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096), add={"final_logits_bias": ("F32", [1, 50264])})
checkpoint("Helsinki-NLP/opus-mt-en-de", "marian MarianMTModel", {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 58101, "decoder_vocab_size": 58101, "max_position_embeddings": 512, "pad_token_id": 58100}, file="pytorch_model.bin")
checkpoint("allenai/led-base-16384", "led LEDForConditionalGeneration", dict(BART, attention_window=[1024] * 6, max_encoder_position_embeddings=16384, max_decoder_position_embeddings=1024))
for name, width, layers, heads in [("whisper-tiny", 384, 4, 6), ("whisper-small", 768, 12, 12), ("whisper-large-v3", 1280, 32, 20)]:
    checkpoint(f"openai/{name}", "whisper WhisperForConditionalGeneration", {"d_model": width, "encoder_layers": layers, "decoder_layers": layers, "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width, "vocab_size": 51866 if "v3" in name else 51865, "num_mel_bins": 128 if "v3" in name else 80}, dtype="F16" if "v3" in name else "F32")

# Sound.
CONV = dict(conv_dim=[512] * 7, conv_kernel=[10, 3, 3, 3, 3, 2, 2], conv_stride=[5, 2, 2, 2, 2, 2, 2], num_conv_pos_embeddings=128, num_conv_pos_embedding_groups=16)
checkpoint("facebook/wav2vec2-base-960h", "wav2vec2 Wav2Vec2ForCTC", encoder("base", vocab_size=32, **CONV), rename=NORM, kinds=["legacy names"])
checkpoint("facebook/wav2vec2-large-960h-lv60-self", "wav2vec2 Wav2Vec2ForCTC", encoder("large", vocab_size=32, feat_extract_norm="layer", conv_bias=True, do_stable_layer_norm=True, **CONV), rename=NORM, kinds=["legacy names"])
checkpoint("facebook/hubert-base-ls960", "hubert HubertModel", encoder("base", vocab_size=32, **CONV), rename=NORM, file="pytorch_model.bin", kinds=["legacy names"])
checkpoint("microsoft/wavlm-base-plus", "wavlm WavLMModel", encoder("base", vocab_size=32, **CONV), rename=NORM, file="pytorch_model.bin", kinds=["legacy names"])
checkpoint("asapp/sew-tiny-100k", "sew SEWModel", encoder("base", vocab_size=32, squeeze_factor=2), rename=NORM, file="pytorch_model.bin", kinds=["legacy names"])
checkpoint("facebook/encodec_24khz", "encodec EncodecModel", {}, rename=NORM, kinds=["legacy names"])
checkpoint("facebook/mms-tts-eng", "vits VitsModel", {"vocab_size": 38}, rename=NORM, kinds=["legacy names"])
checkpoint("MIT/ast-finetuned-audioset-10-10-0.4593", "audio-spectrogram-transformer ASTForAudioClassification", encoder("base", id2label={str(n): f"c{n}" for n in range(527)}))
checkpoint("laion/clap-htsat-unfused", "clap ClapModel", {})

# Images.
checkpoint("google/vit-base-patch16-224", "vit ViTForImageClassification", encoder("base", image_size=224, patch_size=16, num_channels=3, qkv_bias=True, id2label={str(n): f"c{n}" for n in range(1000)}))
checkpoint("google/vit-base-patch16-224-in21k", "vit ViTModel", encoder("base", image_size=224, patch_size=16))
checkpoint("facebook/dinov2-base", "dinov2 Dinov2Model", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "mlp_ratio": 4, "image_size": 518, "patch_size": 14, "qkv_bias": True})
checkpoint("facebook/deit-base-distilled-patch16-224", "deit DeiTForImageClassificationWithTeacher", encoder("base", image_size=224, patch_size=16, id2label={str(n): f"c{n}" for n in range(1000)}))
# The numbers of layers of each stage have many keys.
checkpoint("microsoft/cvt-13", "cvt CvtForImageClassification", {"embed_dim": [64, 192, 384], "depth": [1, 2, 10], "num_heads": [1, 3, 6], "id2label": {str(n): f"L{n}" for n in range(1000)}}, file="pytorch_model.bin")
checkpoint("example/funnel with three blocks", "funnel FunnelForMaskedLM", {"block_sizes": [4, 4, 4], "num_decoder_layers": 2, "d_model": 768, "n_head": 12, "d_head": 64, "d_inner": 3072, "vocab_size": 30522})
checkpoint("google/reformer-crime-and-punishment", "reformer ReformerModelWithLMHead", {"attention_head_size": 64, "attn_layers": ["local", "lsh"] * 3, "axial_pos_embds": True, "axial_pos_embds_dim": [64, 192], "axial_pos_shape": [512, 1024], "feed_forward_size": 512, "hidden_size": 256, "is_decoder": True,
           "max_position_embeddings": 524288, "num_attention_heads": 2, "vocab_size": 320}, file="pytorch_model.bin")
checkpoint("microsoft/swin-tiny-patch4-window7-224", "swin SwinForImageClassification", {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7, "image_size": 224, "patch_size": 4, "id2label": {str(n): f"c{n}" for n in range(1000)}})
checkpoint("microsoft/resnet-50", "resnet ResNetForImageClassification", {"embedding_size": 64, "hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 4, 6, 3], "layer_type": "bottleneck", "id2label": {str(n): f"c{n}" for n in range(1000)}})
checkpoint("facebook/regnet-x-002", "regnet RegNetForImageClassification", {"embedding_size": 32, "hidden_sizes": [24, 56, 152, 368], "depths": [1, 1, 4, 7], "groups_width": 8, "layer_type": "x", "id2label": {str(n): f"c{n}" for n in range(1000)}}, kinds=["an option of the configuration"])
checkpoint("facebook/regnet-y-040", "regnet RegNetForImageClassification", {"embedding_size": 32, "hidden_sizes": [128, 192, 512, 1088], "depths": [2, 6, 12, 2], "groups_width": 64, "layer_type": "y", "id2label": {str(n): f"c{n}" for n in range(1000)}})
checkpoint("facebook/convnext-tiny-224", "convnext ConvNextForImageClassification", {"depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768], "image_size": 224, "id2label": {str(n): f"c{n}" for n in range(1000)}})
checkpoint("nvidia/segformer-b0-finetuned-ade-512-512", "segformer SegformerForSemanticSegmentation", {"depths": [2, 2, 2, 2], "hidden_sizes": [32, 64, 160, 256], "num_attention_heads": [1, 2, 5, 8], "sr_ratios": [8, 4, 2, 1], "mlp_ratios": [4, 4, 4, 4], "decoder_hidden_size": 256, "id2label": {str(n): f"c{n}" for n in range(150)}})
checkpoint("hustvl/yolos-tiny", "yolos YolosForObjectDetection", {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768, "image_size": [800, 1333], "num_detection_tokens": 100, "use_mid_position_embeddings": False, "id2label": {str(n): f"c{n}" for n in range(91)}})
checkpoint("facebook/sam2-hiera-tiny", "sam2_video Sam2VideoModel", {}, kinds=["the class is not the one of `model_type`"])
checkpoint("facebook/sam2.1-hiera-tiny as an image model", "sam2_video Sam2Model", {}, kinds=["the class is not the one of `model_type`"])
checkpoint("Intel/dpt-large", "dpt DPTForDepthEstimation", encoder("large", image_size=384, patch_size=16, backbone_out_indices=[5, 11, 17, 23], neck_hidden_sizes=[256, 512, 1024, 1024]))

# Images and text.
CLIP_TEXT = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 12, "projection_dim": 512}
checkpoint("openai/clip-vit-base-patch32", "clip CLIPModel", {"projection_dim": 512, "text_config": {"model_type": "clip_text_model", **CLIP_TEXT}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12, "patch_size": 32, "projection_dim": 512}},
           add={"text_model.embeddings.position_ids": ("I64", [1, 77]), "vision_model.embeddings.position_ids": ("I64", [1, 50])})
checkpoint("google/siglip-base-patch16-224", "siglip SiglipModel", {"text_config": {"model_type": "siglip_text_model"}, "vision_config": {"model_type": "siglip_vision_model"}})
checkpoint("Salesforce/blip-image-captioning-base", "blip BlipForConditionalGeneration", {"text_config": {}, "vision_config": {}}, file="pytorch_model.bin")
checkpoint("facebook/flava-full", "flava FlavaForPreTraining", {}, drop=[r"_head\.bias$"], file="pytorch_model.bin", kinds=["tied to a stored tensor"])
LLAVA = {"image_token_index": 32000, "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}, "projector_hidden_act": "gelu", "vision_feature_layer": -2, "vision_feature_select_strategy": "default"}
checkpoint("llava-hf/llava-1.5-7b-hf", "llava LlavaForConditionalGeneration", LLAVA, dtype="F16", rename=[(r"^vision_tower\.", "vision_tower.vision_model.")], kinds=["a key that is missing"])
checkpoint("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2_5_vl Qwen2_5_VLForConditionalGeneration", {"hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 11008, "vocab_size": 151936, "tie_word_embeddings": True, "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048, "in_chans": 3, "patch_size": 14}}, dtype="BF16")
checkpoint("sesame/csm-1b", "csm CsmForConditionalGeneration", {}, kinds=["an option of the configuration"])
checkpoint("google/paligemma-3b-pt-224", "paligemma PaliGemmaForConditionalGeneration", {"projection_dim": 2048, "hidden_size": 2048, "text_config": {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "vocab_size": 257216}, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "image_size": 224}})

# Habits that the loader accepts: one of the names of a shared embedding, other numbers of stages, and classes with their own prefix.
ENCODER = {"d_model": 512, "d_ff": 1024, "d_kv": 64, "num_heads": 6, "num_layers": 8, "num_decoder_layers": 8, "vocab_size": 32128, "relative_attention_num_buckets": 32}
checkpoint("example/t5-encoder with one name of its embedding", "t5 T5EncoderModel", ENCODER, rename=[(r"^shared\.", "encoder.embed_tokens.")], kinds=["tied to a stored tensor"])
checkpoint("example/t5 with one name of its embedding", "t5 T5ForConditionalGeneration", dict(ENCODER, feed_forward_proj="gated-gelu", tie_word_embeddings=False), rename=[(r"^shared\.", "decoder.embed_tokens.")], kinds=["tied to a stored tensor"])
SMALL_BART = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 50265, "max_position_embeddings": 1024}
checkpoint("example/bart with one name of its embedding", "bart BartForConditionalGeneration", SMALL_BART, rename=[(r"^model\.shared\.", "model.encoder.embed_tokens.")], kinds=["tied to a stored tensor"])
checkpoint("example/led with one name of its embedding", "led LEDForConditionalGeneration", dict(SMALL_BART, attention_window=[512] * 6, max_encoder_position_embeddings=16384, max_decoder_position_embeddings=1024), rename=[(r"^led\.shared\.", "led.encoder.embed_tokens.")], kinds=["tied to a stored tensor"])
checkpoint("example/marian with two vocabularies", "marian MarianMTModel", dict(SMALL_BART, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=1, vocab_size=32000, decoder_vocab_size=48000, share_encoder_decoder_embeddings=False, tie_word_embeddings=False), kinds=["an option of the configuration"])
checkpoint("facebook/dpr-reader-single-nq-base", "dpr DPRReader", encoder("base", vocab_size=30522, projection_dim=0, **BERT), add={"span_predictor.encoder.bert_model.embeddings.position_ids": ("I64", [1, 512])}, kinds=["the class is not the one of `model_type`"])
checkpoint("facebook/dpr-ctx_encoder-single-nq-base", "dpr DPRContextEncoder", encoder("base", vocab_size=30522, projection_dim=0, **BERT), add={"ctx_encoder.bert_model.embeddings.position_ids": ("I64", [1, 512])})
checkpoint("example/swin with three stages", "swin SwinForImageClassification", {"embed_dim": 48, "depths": [2, 2, 4], "num_heads": [3, 6, 12], "window_size": 7, "image_size": 224, "patch_size": 4, "id2label": {str(n): f"c{n}" for n in range(10)}}, kinds=["an option of the configuration"])
checkpoint("naver-clova-ix/donut-base, its encoder", "donut-swin DonutSwinModel", {"embed_dim": 64, "depths": [2, 4, 6], "num_heads": [2, 4, 8], "window_size": 7, "image_size": 224, "patch_size": 4}, kinds=["an option of the configuration"])
checkpoint("example/segformer with other ratios", "segformer SegformerForImageClassification", {"depths": [2, 2, 2], "num_encoder_blocks": 3, "hidden_sizes": [32, 64, 160], "num_attention_heads": [1, 2, 5], "sr_ratios": [4, 1, 2], "patch_sizes": [7, 3, 3], "strides": [4, 2, 2], "mlp_ratios": [4, 4, 4], "id2label": {str(n): f"c{n}" for n in range(10)}}, kinds=["an option of the configuration"])
checkpoint("squeezebert/squeezebert-uncased with other groups", "squeezebert SqueezeBertForMaskedLM", encoder("base", vocab_size=30522, embedding_size=768, q_groups=4, k_groups=4, v_groups=4, post_attention_groups=1, intermediate_groups=4, output_groups=2, **BERT), kinds=["an option of the configuration"])
checkpoint("example/switch with two experts", "switch_transformers SwitchTransformersForConditionalGeneration", dict(ENCODER, num_experts=2, num_sparse_encoder_layers=4, num_sparse_decoder_layers=4, expert_capacity=64), kinds=["an option of the configuration"])
checkpoint("example/wav2vec2 with an adapter", "wav2vec2 Wav2Vec2ForCTC", encoder("base", vocab_size=32, add_adapter=True, num_adapter_layers=3, output_hidden_size=512, **CONV), rename=NORM, kinds=["legacy names", "an option of the configuration"])
# Older names of the relatives of BERT, and their masks.
for name, names, more in [("google/mobilebert-uncased", "mobilebert MobileBertForPreTraining", {"hidden_size": 512, "num_hidden_layers": 24, "num_attention_heads": 4, "intermediate_size": 512, "embedding_size": 128, "vocab_size": 30522}),
                          ("allenai/longformer-base-4096", "longformer LongformerForMaskedLM", encoder("base", vocab_size=50265, attention_window=[512] * 12, max_position_embeddings=4098)),
                          ("google/bigbird-roberta-base", "big_bird BigBirdForPreTraining", encoder("base", vocab_size=50358, max_position_embeddings=4096)),
                          ("microsoft/layoutlm-base-uncased", "layoutlm LayoutLMForMaskedLM", encoder("base", vocab_size=30522, max_2d_position_embeddings=1024)),
                          ("google/tapas-base-finetuned-wtq", "tapas TapasForQuestionAnswering", encoder("base", vocab_size=30522, type_vocab_sizes=[3, 256, 256, 2, 256, 256, 10], num_aggregation_labels=4)),
                          ("junnyu/roformer_chinese_base", "roformer RoFormerForMaskedLM", encoder("base", vocab_size=50000, embedding_size=768, max_position_embeddings=1536))]:
    checkpoint(name, names, more, rename=GAMMA, kinds=["legacy names"])

# Names and stacks of experts as transformers has them in memory, which training programs dump.
checkpoint("example/Qwen3-30B-A3B from memory", "qwen3_moe Qwen3MoeForCausalLM", llama(2048, 12, 32, 4, 6144, 151936, head_dim=128, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=768, tie_word_embeddings=False), dtype="BF16", in_memory=True, kinds=["other writers"])
checkpoint("example/Mixtral from memory", "mixtral MixtralForCausalLM", llama(4096, 8, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False), dtype="BF16", in_memory=True, kinds=["other writers"])
