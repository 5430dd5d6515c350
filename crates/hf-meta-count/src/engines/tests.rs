use super::EngineModel;
use crate::memory::{CacheSpec, Memory, MemoryOptions};
use crate::results::EngineReport;

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
            "vllm has MPTForCausalLM only until version 0.28.0",
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
            "no engine in the table has UnheardForCausalLM (vllm 0.33.0)",
        ),
        // Measured: vLLM rejects a configuration whose type is unknown.
        ("LlamaForCausalLM", "unheard", "vllm", None, "vllm 0.33.0 has no model type unheard"),
        // A class that others have may be another one if no engine knows its type.
        (
            "BloomForCausalLM",
            "unheard",
            "sglang",
            None,
            "no engine in the table has BloomForCausalLM (sglang 0.5.23)",
        ),
        ("LlamaForCausalLM", "llama", "mlx-lm", Some(true), ""),
        ("T5Model", "t5", "mlx-lm", Some(false), "mlx-lm 0.32.2 has no t5; transformers has it"),
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
            "33.2 GB at 131,072 tokens, 23.2 GB usable; at most 54,784 tokens fit",
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
            "the model supports at most 131072 tokens, not 1048576",
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
            "`maxNumBatchedTokens`, `tp`, `pp` and `gpuMemoryUtilization` require the engine `vllm`",
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
