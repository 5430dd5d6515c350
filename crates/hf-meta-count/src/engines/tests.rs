use super::{EngineModel, Paired, add_answer};
use crate::memory::{CacheSpec, Memory, MemoryOptions};
use crate::results::{EngineReason, EngineReasonCode, EngineReport, VerifiedSet, VerifyReport};

/// The names and values of options.
type Given<'a> = &'a [(&'a str, &'a str)];

fn options(given: Given<'_>) -> MemoryOptions {
    let mut options = MemoryOptions::default();
    for (name, value) in given {
        options.set(name, value).unwrap();
    }
    options.finish().unwrap();
    options
}

fn answer(config: &str, weight_bytes: u64, given: &[(&str, &str)]) -> EngineReport {
    let options = options(given);
    let cache = CacheSpec::for_options(config.as_bytes(), &options);
    let memory = Some(Memory::new(weight_bytes, cache, options));
    let config = Some(config.as_bytes());
    EngineModel { config, format: "safetensors", memory, ..EngineModel::default() }.answer(&options)
}

/// Returns the answer and the first reason.
fn first(report: &EngineReport) -> (Option<bool>, &str) {
    (report.loads, report.reasons.first().map_or("", |reason| &*reason.message))
}

const LLAMA: &str = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","dtype":"bfloat16",
    "hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"num_hidden_layers":32,
    "max_position_embeddings":131072,"vocab_size":128256,"intermediate_size":14336}"#;

fn with(config: &str, keys: &str) -> String {
    config.replacen('{', &format!("{{{keys},"), 1)
}

#[test]
fn engines_differ_in_their_architectures() {
    let cases = [
        ("LlamaForCausalLM", "llama", "vllm", Some(true), ""),
        // Converted to LlamaForCausalLM.
        ("LlamaForSequenceClassification", "llama", "vllm", Some(true), ""),
        (
            "CanineModel",
            "canine",
            "vllm",
            Some(false),
            "vllm 0.33.0 has no CanineModel; transformers has it",
        ),
        (
            "BartForConditionalGeneration",
            "unheard",
            "vllm",
            Some(false),
            "vllm has BartForConditionalGeneration only in a plugin",
        ),
        (
            "MPTForCausalLM",
            "unheard",
            "vllm",
            Some(false),
            "vllm had MPTForCausalLM until version 0.28.0",
        ),
        (
            "DiffLlamaForCausalLM",
            "diffllama",
            "vllm",
            None,
            "vllm 0.33.0 has no DiffLlamaForCausalLM; its Transformers backend may load it",
        ),
        (
            "UnheardForCausalLM",
            "unheard",
            "vllm",
            None,
            "neither vllm 0.33.0 nor another engine has UnheardForCausalLM",
        ),
        // Measured: vLLM rejects a configuration whose type is unknown.
        ("LlamaForCausalLM", "unheard", "vllm", None, "vllm 0.33.0 has no model type unheard"),
        // A class that others have may be another one if no engine knows its type.
        (
            "BloomForCausalLM",
            "unheard",
            "sglang",
            None,
            "neither sglang 0.5.23 nor another engine has BloomForCausalLM",
        ),
        ("LlamaForCausalLM", "llama", "mlx-lm", Some(true), ""),
        ("T5Model", "t5", "mlx-lm", Some(false), "mlx-lm 0.32.2 has no t5; transformers has it"),
        (
            "LlamaForSequenceClassification",
            "llama",
            "mlx-lm",
            None,
            "mlx-lm loads models that generate text, not LlamaForSequenceClassification",
        ),
        (
            "LlamaForCausalLM",
            "llama",
            "llama.cpp",
            Some(false),
            "llama.cpp 0.6.0 reads gguf, not safetensors",
        ),
        (
            "BloomForCausalLM",
            "bloom",
            "sglang",
            Some(false),
            "sglang 0.5.23 has no BloomForCausalLM; vllm and transformers have it",
        ),
    ];
    for (class, model_type, engine, loads, message) in cases {
        let config = format!(r#"{{"architectures":["{class}"],"model_type":"{model_type}"}}"#);
        let report = answer(&config, 1, &[("engine", engine)]);
        assert_eq!(first(&report), (loads, message), "{class} {engine}");
    }
}

#[test]
fn code_in_the_repository_is_never_a_no() {
    let map = r#""auto_map":{"AutoModelForCausalLM":"modeling.Model"}"#;
    for (class, model_type) in [("BloomForCausalLM", "unheard"), ("T5Model", "t5"), ("X", "x")] {
        let config =
            format!(r#"{{"architectures":["{class}"],"model_type":"{model_type}",{map}}}"#);
        for engine in ["vllm", "sglang", "transformers"] {
            let report = answer(&config, 1, &[("engine", engine)]);
            let is_known = engine == "transformers" && model_type == "t5";
            assert_eq!(report.loads, is_known.then_some(true), "{class} {engine}");
        }
    }
}

#[test]
fn methods_need_an_engine_and_a_gpu() {
    let cases = [
        (r#""quant_method":"fp8""#, "vllm", "h100", Some(true), ""),
        (
            r#""quant_method":"awq""#,
            "vllm",
            "v100",
            Some(false),
            "awq needs compute capability 7.5, and V100 has 7.0",
        ),
        (r#""quant_method":"AWQ""#, "vllm", "t4", Some(true), ""),
        (
            r#""quant_method":"bitsandbytes""#,
            "vllm",
            "h100",
            Some(false),
            "vllm 0.33.0 has no quantization method bitsandbytes; sglang and transformers have it",
        ),
        (
            r#""quant_method":"unheard""#,
            "vllm",
            "h100",
            None,
            "vllm 0.33.0 has no quantization method unheard",
        ),
        (
            r#""quant_method":"modelopt","quant_algo":"NVFP4""#,
            "sglang",
            "t4",
            Some(false),
            "modelopt/nvfp4 needs compute capability 8.0, and T4 has 7.5",
        ),
        (
            r#""quant_method":"modelopt","quant_algo":"W4A8_AWQ""#,
            "vllm",
            "h100",
            None,
            "vllm 0.33.0 has no quantization method modelopt/w4a8_awq",
        ),
        (
            r#""quant_method":"gptq_marlin""#,
            "vllm",
            "mi300x",
            Some(false),
            "vllm 0.33.0 does not load gptq_marlin on GPUs of AMD",
        ),
        (
            r#""quant_method":"fbgemm_fp8""#,
            "vllm",
            "h100",
            None,
            "fbgemm_fp8 requires `--allow-deprecated-quantization`",
        ),
        (r#""quant_method":"compressed_tensors""#, "vllm", "mi300x", Some(true), ""),
        // Measured: it loads the weights as if they were not quantized.
        (
            r#""quant_method":"modelopt","quant_algo":"FP8""#,
            "transformers",
            "h100",
            None,
            "transformers 5.24.0 has no quantization method modelopt/fp8, and ignores it",
        ),
        (
            r#""bits":4,"group_size":64"#,
            "vllm",
            "h100",
            Some(false),
            "vllm 0.33.0 has no quantization method mlx; mlx-lm has it",
        ),
        (r#""bits":4,"group_size":64"#, "mlx-lm", "m3-max-64gb", Some(true), ""),
        // Its tensors `g_idx` are an error, and FP8 depends on the class.
        (
            r#""quant_method":"gptq","bits":4"#,
            "mlx-lm",
            "m3-max-64gb",
            None,
            "mlx-lm 0.32.2 loads gptq for some models only",
        ),
        (
            r#""quant_method":"fp8""#,
            "mlx-lm",
            "m3-max-64gb",
            None,
            "mlx-lm 0.32.2 loads fp8 for some models only",
        ),
        // Its method has schemes that older GPUs run, but the kernels of the wheel do not.
        (
            r#""quant_method":"compressed-tensors""#,
            "vllm",
            "v100",
            None,
            "the wheel of vllm 0.33.0 has no code for compute capability 7.0",
        ),
    ];
    for (section, engine, gpu, loads, message) in cases {
        let config = with(LLAMA, &format!(r#""quantization_config":{{{section}}}"#));
        let given = [("engine", engine), ("gpu", gpu), ("context", "1k")];
        let mut report = answer(&config, 1, &given);
        // The cache of SGLang is unknown.
        report.reasons.retain(|reason| !reason.message.starts_with("unknown:"));
        if report.reasons.is_empty() {
            report.loads = Some(true);
        }
        assert_eq!(first(&report), (loads, message), "{section} {engine} {gpu}");
    }
}

#[test]
fn memory_and_heads_decide() {
    let cases: [(u64, Given<'_>, _, &str); 7] = [
        (16_000_000_000, &[("gpu", "h100")], Some(true), ""),
        (
            16_000_000_000,
            &[("gpu", "rtx4090")],
            Some(false),
            "33.2 GB with weights at 131,072 tokens, 23.2 GB usable; 54,784 tokens fit",
        ),
        (
            160_000_000_000,
            &[("gpu", "2xh100"), ("context", "1k")],
            Some(false),
            "at least 80.0 GB per GPU, 77.0 GB usable",
        ),
        (
            16_000_000_000,
            &[("gpu", "3xh100")],
            Some(false),
            "its 32 attention heads cannot be divided among 3 GPUs",
        ),
        (
            16_000_000_000,
            &[("budget", "80GB"), ("tp", "2"), ("context", "1m")],
            Some(false),
            "the model supports at most 131,072 tokens, not 1,048,576",
        ),
        (
            16_000_000_000,
            &[("gpu", "m3-max-64gb")],
            None,
            "no rule for vllm 0.33.0 on GPUs of Apple",
        ),
        (16_000_000_000, &[], Some(true), ""),
    ];
    for (weight_bytes, given, loads, message) in cases {
        let given: Vec<_> = [("engine", "vllm")].into_iter().chain(given.iter().copied()).collect();
        let report = answer(LLAMA, weight_bytes, &given);
        assert_eq!(first(&report), (loads, message), "{given:?}");
    }
}

/// vLLM derives a longer context from the factor of the position embeddings, and other engines have no limit.
#[test]
fn engines_limit_the_context() {
    let rope = |rope: &str| with(LLAMA, rope);
    let maximum = "the model supports at most 131,072 tokens, not 262,144";
    let (linear, stretched) = (r#"{"type":"linear","factor":2.0}"#, Some(true));
    let nested = r#"{"full_attention":{"rope_type":"linear","factor":2},"sliding_attention":{"rope_type":"default"}}"#;
    let gemma = r#"{"architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","max_position_embeddings":131072}"#;
    let cases = [
        (LLAMA.to_owned(), "vllm", Some(false)),
        (LLAMA.to_owned(), "transformers", None),
        (LLAMA.to_owned(), "mlx-lm", None),
        (rope(&format!(r#""rope_scaling":{linear}"#)), "vllm", stretched),
        (rope(&format!(r#""rope_parameters":{nested}"#)), "vllm", stretched),
        (rope(r#""rope_scaling":{"rope_type":"yarn","factor":2.0}"#), "vllm", Some(false)),
        (rope(r#""rope_scaling":{"rope_type":"dynamic","factor":null}"#), "vllm", Some(false)),
        (rope(r#""rope_scaling":null"#), "vllm", Some(false)),
        (rope(r#""model_max_length":262144"#), "vllm", stretched),
        (with(gemma, &format!(r#""rope_scaling":{linear}"#)), "vllm", Some(false)),
    ];
    for (config, engine, loads) in cases {
        let given = [("engine", engine), ("budget", "900GB"), ("context", "256k")];
        let report = answer(&config, 1, &given);
        let message = if loads == Some(true) { "" } else { maximum };
        assert_eq!(first(&report), (loads, message), "{config} {engine}");
    }
    // The maximum of a factor with a fraction is unknown.
    let fraction = rope(r#""rope_scaling":{"type":"linear","factor":2.5}"#);
    let spec = CacheSpec::for_options(fraction.as_bytes(), &options(&[("engine", "vllm")]));
    assert_eq!(spec.unwrap().max_context, None);
}

/// Some classes of vLLM run in one stage.
#[test]
fn layers_of_some_classes_are_not_divided() {
    let idefics = LLAMA.replace("LlamaForCausalLM", "Idefics3ForConditionalGeneration");
    let report = answer(&idefics, 1, &[("engine", "vllm"), ("pp", "2")]);
    let message = "vllm 0.33.0 does not divide the layers of Idefics3ForConditionalGeneration";
    assert_eq!(first(&report), (Some(false), message));
    assert_eq!(answer(LLAMA, 1, &[("engine", "vllm"), ("pp", "2")]).loads, Some(true));
}

/// vLLM reads `params.json` in place of `config.json`. No rule covers it.
#[test]
fn a_model_without_a_configuration_is_unknown() {
    let model = EngineModel {
        format: "safetensors",
        architecture: Some("mistral"),
        ..EngineModel::default()
    };
    let report = model.answer(&options(&[("engine", "vllm")]));
    assert_eq!(first(&report), (None, "no rule for models without config.json in vllm"));
}

/// Whole models are divided among GPUs in ways that have no rule here.
#[test]
fn several_gpus_of_other_engines_are_bounds() {
    let given = [("engine", "transformers"), ("gpu", "2xrtx4090"), ("context", "1k")];
    assert_eq!(answer(LLAMA, 16_000_000_000, &given).loads, Some(true));
    let report = answer(LLAMA, 40_000_000_000, &given);
    let message = "the model fits only if it is divided among 2 GPUs";
    assert_eq!(first(&report), (None, message));
    assert_eq!(answer(LLAMA, 60_000_000_000, &given).loads, Some(false));
}

#[test]
fn options_that_contradict_each_other_are_sentences() {
    let finish = |given: Given<'_>| {
        let mut options = MemoryOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        options.finish().unwrap_err()
    };
    let cases: [(Given<'_>, &str); 4] = [
        (
            &[("gpu", "h100"), ("budget", "80GB")],
            "a GPU has a memory, so no other one can be given",
        ),
        (
            &[("engine", "vllm"), ("gpu", "2xh100"), ("tp", "4")],
            "the model cannot be divided among 4 of 2 × H100",
        ),
        (
            &[("tp", "2")],
            "`maxNumBatchedTokens`, `numSpeculativeTokens`, `tp`, `pp` and `gpuMemoryUtilization` require the engine `vllm`",
        ),
        (
            &[("engine", "vllm"), ("reserve", "2GB")],
            "vLLM uses a share of the memory, so it has no reserve",
        ),
    ];
    for (given, message) in cases {
        assert_eq!(finish(given), message, "{given:?}");
    }
}

/// Nothing in a configuration may cause a panic.
#[test]
fn any_configuration_has_an_answer() {
    for config in ["", "[]", "{", "{}", r#"{"architectures":7,"model_type":[]}"#, "\u{feff}{}"] {
        for engine in ["vllm", "sglang", "transformers", "llama.cpp", "mlx-lm"] {
            let report = answer(config, u64::MAX, &[("engine", engine), ("gpu", "1024xh100")]);
            assert_ne!(report.loads, Some(true), "{config} {engine}");
        }
    }
}

/// A draft is loaded with the options of its model, and a head that was trained for a model shares its embeddings.
#[test]
fn drafts_are_models_or_heads() {
    let draft = |source: &str, keys: &str, problem: bool, given: Given<'_>| {
        let given: Vec<_> =
            [("engine", "vllm"), ("budget", "80GB")].iter().chain(given).copied().collect();
        let options = options(&given);
        let mut report = answer(LLAMA, 1, &given);
        let config = LLAMA.replace('}', &format!(",{keys}}}"));
        let own = answer(&config, 1, &given);
        let files = EngineReason::excluded(EngineReasonCode::Files, "files are missing".to_owned());
        let problems = own.reasons.into_iter().chain(problem.then_some(files)).collect();
        Paired::Draft { config: Some(config.as_bytes()), problems, memory: own.memory }.add_to(
            &mut report,
            source,
            Some(LLAMA.as_bytes()),
            &options,
        );
        let total = report.memory.as_ref().unwrap().total_bytes;
        (report.loads, report.reasons.first().map(|found| found.message.clone()), total.is_some())
    };
    let vocabulary = "the draft has a vocabulary of 9 tokens, and the model one of 128,256";
    let missing = Some("files are missing".to_owned());
    assert_eq!(draft("org/draft", r#""x":1"#, false, &[]), (Some(true), None, true));
    let small = r#""vocab_size":9,"x":1"#;
    assert_eq!(draft("org/draft", small, false, &[]).1, Some(vocabulary.to_owned()));
    assert_eq!(draft("org/EAGLE-Llama", small, false, &[]), (Some(true), None, true));
    assert_eq!(draft("org/draft", r#""x":1"#, true, &[]).1, missing);
    assert_eq!(draft("org/draft", r#""x":1"#, true, &[]).0, Some(false));
    assert_eq!(draft("org/EAGLE-Llama", r#""x":1"#, true, &[]), (None, missing, true));
    // The heads of the draft are divided among the same GPUs.
    let heads = r#""num_attention_heads":6"#;
    let message = "its 6 attention heads cannot be divided among 4 GPUs".to_owned();
    assert_eq!(draft("org/draft", heads, false, &[("tp", "4")]).1, Some(message));
    // Windows and full layers are divided into groups together, and a draft is on one stage.
    let windows = r#""model_type":"mistral","sliding_window":64"#;
    assert!(!draft("org/draft", windows, false, &[]).2);
    assert!(!draft("org/draft", r#""x":1"#, false, &[("pp", "2")]).2);
}

/// A draft predicts a number of tokens, or multiples of it, and is converted to the dtype of its model.
#[test]
fn the_tokens_and_the_dtype_of_a_draft_are_compared() {
    let draft = |predicted: &str, dtype: &str, tokens: &str| {
        let given = [("engine", "vllm"), ("budget", "80GB"), ("numSpeculativeTokens", tokens)];
        let options = options(&given);
        let mut report = answer(LLAMA, 1, &given);
        let config = LLAMA.replace("bfloat16", dtype);
        let config = config.replace('}', &format!(r#","n_predict":{predicted}}}"#));
        let memory = answer(&config, 1, &given).memory;
        Paired::Draft { config: Some(config.as_bytes()), problems: Vec::new(), memory }.add_to(
            &mut report,
            "org/draft",
            Some(LLAMA.as_bytes()),
            &options,
        );
        let is_known = report.memory.is_some_and(|memory| memory.total_bytes.is_some());
        (report.loads, report.reasons.first().map(|found| found.message.clone()), is_known)
    };
    for (tokens, predicted) in [("3", "4"), ("8", "4"), ("9", "0"), ("5", "null")] {
        let found = draft(predicted, "bfloat16", tokens);
        assert_eq!(found, (Some(true), None, true), "{tokens} {predicted}");
    }
    let text = "6 tokens per step are not a multiple of 4, which the draft predicts (`n_predict`)";
    assert_eq!(draft("4", "bfloat16", "6"), (Some(false), Some(text.to_owned()), true));
    assert_eq!(draft("4", "float16", "4"), (Some(true), None, true));
    let text = "vllm converts the draft from float32 to bfloat16, so its size is unknown";
    assert_eq!(draft("4", "float32", "4"), (None, Some(text.to_owned()), false));
}

/// Only the sources of vLLM were compared.
#[test]
fn pairs_of_other_engines_are_unknown() {
    for engine in ["sglang", "transformers", "mlx-lm"] {
        let options = options(&[("engine", engine)]);
        let (config, json) = (Some(LLAMA.as_bytes()), Some(&br#"{"peft_type":"LORA","r":8}"#[..]));
        let tensors = Vec::new();
        let adapter = Paired::Adapter { config: json, rank: None, tensors, weight_bytes: None };
        let draft = Paired::Draft { config, problems: Vec::new(), memory: None };
        for paired in [adapter, draft] {
            let mut report = answer(LLAMA, 1, &[("engine", engine)]);
            report.loads = Some(true);
            paired.add_to(&mut report, "org/pair", config, &options);
            assert_eq!(report.loads, None, "{engine} {:?}", report.reasons);
            assert!(report.reasons.iter().any(|found| found.message.starts_with("no rule for")));
        }
    }
}

/// The adapters that `PEFTHelper` and the loader in vLLM reject.
#[test]
fn adapters_need_modules_and_features_of_the_engine() {
    let layer = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    let head = "base_model.model.lm_head.lora_A.weight";
    let embedding = "base_model.model.model.embed_tokens.lora_embedding_A";
    let llama = "LlamaForCausalLM";
    let linear = r#""target_modules":["q_proj"],"lora_alpha":8"#;
    let cases = [
        (llama, linear, layer, ""),
        (llama, linear, head, ""),
        (llama, linear, embedding, ""),
        (llama, linear, "base_model.model.score.weight", ""),
        (llama, linear, "base_model.model.lm_head.base_layer.weight", ""),
        (
            llama,
            linear,
            "base_model.model.model.norm.weight",
            "vllm does not load its tensor `base_model.model.model.norm.weight`",
        ),
        ("BloomForCausalLM", linear, layer, "vllm loads no adapters for BloomForCausalLM"),
        ("Gemma2ForCausalLM", linear, layer, ""),
        (
            "Gemma2ForCausalLM",
            linear,
            head,
            "vllm does not load the adapter of `lm_head` for Gemma2ForCausalLM",
        ),
        ("BrandNewForCausalLM", linear, head, ""),
        (llama, r#""lora_alpha":8"#, layer, "adapter_config.json states no `target_modules`"),
        (
            llama,
            r#""target_modules":[],"lora_alpha":8,"rank_pattern":{"q_proj":8,"k_proj":32}"#,
            layer,
            "its rank 32 exceeds 16, the default of `--max-lora-rank`",
        ),
        (
            llama,
            r#""target_modules":[],"lora_alpha":8,"bias":"lora_only""#,
            layer,
            "vllm does not load adapters with biases",
        ),
        (llama, r#""target_modules":[],"lora_alpha":8,"bias":"none""#, layer, ""),
    ];
    let options = options(&[("engine", "vllm")]);
    for (class, keys, tensor, message) in cases {
        let config = format!(r#"{{"architectures":["{class}"],"model_type":"llama"}}"#);
        let adapter = format!(r#"{{"peft_type":"LORA","r":8,{keys}}}"#);
        let mut report = answer(&config, 1, &[("engine", "vllm")]);
        report.reasons.clear();
        Paired::Adapter {
            config: Some(adapter.as_bytes()),
            rank: Some(8),
            tensors: vec![(tensor.to_owned(), vec![8, 64])],
            weight_bytes: None,
        }
        .add_to(&mut report, "org/lora", Some(config.as_bytes()), &options);
        assert_eq!(first(&report).1, message, "{class} {keys} {tensor}");
    }
}

/// vLLM copies a narrower adapter into a part of its memory, and fails for a wider one.
#[test]
fn adapters_have_the_width_of_the_model() {
    let config = r#"{"peft_type":"LORA","r":8,"target_modules":["q_proj"],"lora_alpha":8}"#;
    let options = options(&[("engine", "vllm")]);
    for (width, loads, shown) in
        [(4_096, Some(true), ""), (5_120, Some(false), "5,120"), (2_048, None, "2,048")]
    {
        let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
        let mut report = answer(LLAMA, 1, &[("engine", "vllm")]);
        Paired::Adapter {
            config: Some(config.as_bytes()),
            rank: Some(8),
            tensors: vec![(name.to_owned(), vec![8, width])],
            weight_bytes: None,
        }
        .add_to(&mut report, "org/lora", Some(LLAMA.as_bytes()), &options);
        let message = format!("the adapter has a width of {shown}, and the model one of 4,096");
        assert_eq!(report.loads, loads, "{width}");
        assert_eq!(
            report.reasons.iter().any(|found| found.message == message),
            loads != Some(true)
        );
    }
}

/// Names without an extension are common in stores of GGUF files.
#[test]
fn the_content_decides_the_format() {
    let mut set = VerifiedSet::new("sha256-0".parse().unwrap(), 1, Vec::new());
    set.architecture = Some("llama".to_owned());
    let mut report = VerifyReport { sets: vec![set], ..VerifyReport::default() };
    add_answer(&mut report, None, &options(&[("engine", "llama.cpp")]));
    assert_eq!(first(&report.engine.unwrap()), (Some(true), ""));
}
