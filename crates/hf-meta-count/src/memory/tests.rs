mod oracles;

use std::collections::BTreeMap;

use super::*;
use crate::architectures::architecture::Definitions;
use hf_meta_format::formats::DetectedFormat;

/// Returns the elements of the caches and states; `None` if they are unknown.
fn elements(config: &str, context: u64) -> Result<Option<u64>, CacheError> {
    let spec = CacheSpec::from_config_json(config.as_bytes())?;
    let memory = Memory::new(0, Ok(spec), at(context));
    Ok(memory.cache.zip(memory.state).map(|(cache, state)| cache.elements + state.elements))
}

fn memory(config: &str, options: MemoryOptions) -> Memory {
    Memory::new(0, CacheSpec::from_config_json(config.as_bytes()), options)
}

fn at(context: u64) -> MemoryOptions {
    MemoryOptions { context: Some(context), ..MemoryOptions::default() }
}

/// Figures that users have published.
#[test]
fn published_figures_are_reproduced() {
    // hf-mem #60: 73,728 bytes per token, over 36 layers with 8 heads of 64 elements, if no window is considered.
    let gpt_oss = memory(r#"{"model_type":"gpt_oss","dtype":"bfloat16"}"#, at(1));
    assert_eq!(gpt_oss.cache.unwrap().bytes, 73_728);
    let layers: Vec<_> = gpt_oss.spec.unwrap().caches;
    assert_eq!(
        layers.iter().map(|cache| (cache.kind, cache.layers)).collect::<Vec<_>>(),
        [(CacheKind::Full, 18), (CacheKind::Window, 18)]
    );
    // mlxcel #172: 139 MiB at 32,768 tokens, not 832.
    let gemma = r#"{"model_type":"gemma3_text","head_dim":256,"num_attention_heads":4,"num_key_value_heads":1,
        "num_hidden_layers":26,"sliding_window":512,"sliding_window_pattern":6,"torch_dtype":"bfloat16"}"#;
    let gemma = memory(gemma, at(32_768));
    assert_eq!(gemma.cache.unwrap().bytes.div_ceil(1 << 20), 139);
    // Qwen3.6-27B: 16 of its 64 layers use full attention.
    let qwen = r#"{"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text","num_hidden_layers":64}}"#;
    let qwen = memory(qwen, at(1)).spec.unwrap();
    let full: u64 = qwen
        .caches
        .iter()
        .filter(|cache| cache.kind == CacheKind::Full)
        .map(|cache| cache.layers)
        .sum();
    assert_eq!((full, qwen.layers), (16, 64));
}

#[test]
fn hostile_configs_are_errors() {
    let long = format!(r#"{{"model_type":"gemma3_text","layer_types":[{}1]}}"#, "1,".repeat(9_999));
    let cases = [
        ("[]", CacheError::NotAnObject),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            CacheError::OtherContent { content: DetectedFormat::GitLfsPointer.to_string() },
        ),
        ("{}", FormulaError::MissingKey { key: "model_type" }.into()),
        (r#"{"model_type":"x"}"#, CacheError::UnknownArchitecture { architecture: "x".to_owned() }),
        (r#"{"model_type":"root"}"#, FormulaError::MissingKey { key: "num_layers" }.into()),
        (
            r#"{"model_type":"llama","num_hidden_layers":9223372036854775808}"#,
            CacheError::TooManyLayers { layers: 1 << 63, limit: 1_024 },
        ),
        (
            r#"{"model_type":"llama","num_key_value_heads":0}"#,
            FormulaError::InvalidKey { key: "num_key_value_heads" }.into(),
        ),
        (
            r#"{"model_type":"llama","num_attention_heads":0}"#,
            FormulaError::InvalidResult { formula: "$hidden/$heads" }.into(),
        ),
        (
            r#"{"model_type":"llama","head_dim":18446744073709551615}"#,
            FormulaError::InvalidResult { formula: "2*num_key_value_heads*head_dim" }.into(),
        ),
        (
            r#"{"model_type":"mistral","sliding_window":-1}"#,
            FormulaError::InvalidKey { key: "sliding_window" }.into(),
        ),
        (
            r#"{"model_type":"gemma3_text","layer_types":["full_attention"]}"#,
            FormulaError::WrongLength { key: "layer_types" }.into(),
        ),
        (
            r#"{"model_type":"gemma3_text","num_hidden_layers":1,"layer_types":["new"]}"#,
            FormulaError::InvalidKey { key: "layer_types" }.into(),
        ),
        (&long, FormulaError::InvalidKey { key: "layer_types" }.into()),
        (
            r#"{"model_type":"jetmoe","num_key_value_heads":null,"num_attention_heads":null}"#,
            FormulaError::InvalidResult {
                formula: "num_attention_heads|n_head|n_heads|num_heads|attention_heads",
            }
            .into(),
        ),
    ];
    for (config, expected) in cases {
        let found = CacheSpec::from_config_json(config.as_bytes());
        assert_eq!(found, Err(expected), "{config}");
    }
    let huge = r#"{"model_type":"llama","head_dim":1000000000000000,"num_key_value_heads":1}"#;
    let huge = memory(huge, at(1 << 20));
    assert_eq!((huge.cache, huge.total_bytes, huge.unknown.is_some()), (None, None, true));
}

/// Every definition must be complete: with the defaults alone, each known architecture has a spec.
#[test]
fn every_architecture_is_complete() {
    let lines = include_str!("../architectures/architectures.txt").lines();
    let lines =
        lines.filter_map(|line| line.strip_prefix("cache ")).filter(|line| !line.starts_with('g'));
    let names = lines.filter(|line| line.contains("hidden_size=") || line.contains("n_embd="));
    let mut found = 0;
    // The class of Qwen4 has no default for its indexer.
    let names = names.filter(|line| !line.starts_with("qwen4"));
    for name in names.flat_map(|line| line.split(' ').next().unwrap().split(',')) {
        if Definitions::find("cache", name).unwrap().get("$layers").is_some() && !is_base(name) {
            let spec =
                CacheSpec::from_config_json(format!(r#"{{"model_type":"{name}"}}"#).as_bytes());
            assert!(spec.is_ok(), "{name}: {spec:?}");
            found += 1;
        }
    }
    assert!(found >= 150, "{found}");
}

fn is_base(name: &str) -> bool {
    include_str!("../architectures/architectures.txt").contains(&format!(" <{name} "))
}

fn gguf(keys: &[(&str, &str)]) -> Result<CacheSpec, CacheError> {
    let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    CacheSpec::from_gguf(&keys.collect())
}

#[test]
fn caches_of_gguf_files_follow_from_their_keys() {
    let cell = |keys: &[(&str, &str)], context| {
        let memory = Memory::new(0, gguf(keys), at(context));
        (memory.cache.unwrap().elements, memory.state.unwrap().elements)
    };
    let llama = [
        ("general.architecture", "llama"),
        ("llama.block_count", "32"),
        ("llama.embedding_length", "4096"),
        ("llama.attention.head_count", "32"),
        ("llama.attention.head_count_kv", "8"),
    ];
    assert_eq!(cell(&llama, 1), (32 * 8 * 256, 0));
    let mixed = [&llama[..3], &[("llama.attention.head_count", "32")]].concat();
    let mixed =
        [&mixed[..], &[("llama.attention.head_count_kv", "[8, 0]"), ("llama.block_count", "2")]]
            .concat();
    assert_eq!(cell(&mixed, 1), (8 * 256, 0));
    let gemma = [
        ("general.architecture", "gemma3"),
        ("gemma3.block_count", "26"),
        ("gemma3.attention.head_count", "4"),
        ("gemma3.attention.head_count_kv", "1"),
        ("gemma3.attention.key_length", "256"),
        ("gemma3.attention.value_length", "256"),
        ("gemma3.attention.sliding_window", "512"),
    ];
    assert_eq!(cell(&gemma, 32_768), (512 * (4 * 32_768 + 22 * 511), 0));
    let deepseek = [
        ("general.architecture", "deepseek2"),
        ("deepseek2.block_count", "61"),
        ("deepseek2.attention.key_length_mla", "192"),
        ("deepseek2.attention.value_length_mla", "128"),
        ("deepseek2.attention.kv_lora_rank", "512"),
        ("deepseek2.rope.dimension_count", "64"),
        ("deepseek2.attention.head_count", "128"),
    ];
    assert_eq!(cell(&deepseek, 1), (61 * 576, 0));
    let qwen = [
        ("general.architecture", "qwen3next"),
        ("qwen3next.block_count", "48"),
        ("qwen3next.attention.head_count", "16"),
        ("qwen3next.attention.head_count_kv", "2"),
        ("qwen3next.attention.key_length", "256"),
        ("qwen3next.attention.value_length", "256"),
        ("qwen3next.ssm.conv_kernel", "4"),
        ("qwen3next.ssm.inner_size", "4096"),
        ("qwen3next.ssm.state_size", "128"),
        ("qwen3next.ssm.group_count", "16"),
    ];
    assert_eq!(cell(&qwen, 1), (12 * 1_024, 36 * (3 * 8_192 + 128 * 4_096)));
    let none = [&llama[..4], &[("llama.attention.head_count_kv", "0")]].concat();
    assert_eq!(
        gguf(&none),
        Err(FormulaError::InvalidKey { key: "attention.head_count_kv" }.into())
    );
    let long = [&llama[..4], &[("llama.attention.head_count_kv", "(999 numbers)")]].concat();
    assert_eq!(
        gguf(&long),
        Err(FormulaError::InvalidKey { key: "attention_head_count_kv" }.into())
    );
}

/// The keys of states and of the interval of full attention, with values that a file should not have.
#[test]
fn keys_of_gguf_states_are_checked() {
    let hybrid = |changes: &[(&str, Option<&str>)]| {
        let keys = [
            ("block_count", "48"),
            ("attention.head_count", "16"),
            ("attention.head_count_kv", "2"),
            ("attention.key_length", "256"),
            ("attention.value_length", "256"),
            ("ssm.conv_kernel", "4"),
            ("ssm.inner_size", "4096"),
            ("ssm.state_size", "128"),
            ("ssm.group_count", "16"),
        ];
        let mut keys: BTreeMap<_, _> = keys.map(|(key, value)| (key, Some(value))).into();
        keys.extend(changes.iter().copied());
        let keys = keys
            .into_iter()
            .filter_map(|(key, value)| Some((format!("qwen3next.{key}"), value?.to_owned())));
        let name = ("general.architecture".to_owned(), "qwen3next".to_owned());
        CacheSpec::from_gguf(&keys.chain([name]).collect())
    };
    let sizes = |changes: &[(&str, Option<&str>)]| {
        let memory = Memory::new(0, hybrid(changes), at(1));
        (memory.cache.unwrap().elements, memory.state.unwrap().elements)
    };
    let (full, state) = (2 * 512, 3 * 8_192 + 128 * 4_096);
    let listed = format!("[{}]", ["1"; 47].join(",") + ",0");
    let intervals = [
        (None, 12),
        (Some(("full_attention_interval", "4")), 12),
        (Some(("full_attention_interval", "2")), 24),
        (Some(("full_attention_interval", "1")), 48),
        (Some(("attention.recurrent_layers", &*listed)), 1),
    ];
    for (change, layers) in intervals {
        let change: Vec<_> = change.map(|(key, value)| (key, Some(value))).into_iter().collect();
        assert_eq!(sizes(&change), (layers * full, (48 - layers) * state), "{change:?}");
    }
    let no_groups = (12 * full, 36 * (3 * 4_096 + 128 * 4_096));
    assert_eq!(sizes(&[("ssm.group_count", None)]), no_groups);
    // The layers that draft tokens come last, and are not part of the cache.
    assert_eq!(sizes(&[("nextn_predict_layers", Some("8"))]), (10 * full, 30 * state));
    let invalid = |key| -> CacheError { FormulaError::InvalidKey { key }.into() };
    let conv = "(ssm_conv_kernel-1)*(ssm_inner_size+2*ssm_group_count*ssm_state_size)";
    let cases = [
        ("ssm.conv_kernel", None, FormulaError::MissingKey { key: "ssm_conv_kernel" }.into()),
        ("ssm.state_size", Some("many"), invalid("ssm_state_size")),
        ("ssm.state_size", Some("128.5"), invalid("ssm_state_size")),
        ("ssm.inner_size", Some("-4096"), invalid("ssm_inner_size")),
        ("ssm.inner_size", Some("0"), invalid("ssm_inner_size")),
        ("ssm.state_size", Some("0"), invalid("ssm_state_size")),
        ("ssm.conv_kernel", Some("0"), FormulaError::InvalidResult { formula: conv }.into()),
        (
            "ssm.inner_size",
            Some("18446744073709551615"),
            FormulaError::InvalidResult { formula: conv }.into(),
        ),
        ("ssm.inner_size", Some("{}"), invalid("ssm_inner_size")),
        ("attention.head_count_kv", Some("-2"), invalid("attention_head_count_kv")),
        (
            "attention.head_count_kv",
            Some("[2, 2]"),
            FormulaError::WrongLength { key: "attention_head_count_kv" }.into(),
        ),
        (
            "attention.recurrent_layers",
            Some("[1, 0]"),
            FormulaError::WrongLength { key: "attention_recurrent_layers" }.into(),
        ),
        (
            "block_count",
            Some("9223372036854775808"),
            CacheError::TooManyLayers { layers: 1 << 63, limit: 1_024 },
        ),
        ("block_count", Some("many"), invalid("block_count")),
        ("block_count", None, FormulaError::MissingKey { key: "block_count" }.into()),
    ];
    for (key, value, expected) in cases {
        let found = hybrid(&[(key, value)]);
        assert_eq!(found, Err(expected), "{key} {value:?}");
    }
    assert!(hybrid(&[("full_attention_interval", Some("0"))]).is_err());
    let draft = hybrid(&[("nextn_predict_layers", Some("49"))]);
    assert!(
        matches!(draft, Err(CacheError::Formula(FormulaError::InvalidResult { .. }))),
        "{draft:?}"
    );
}

#[test]
fn engines_and_dtypes_change_the_size() {
    type Derive = Box<dyn Fn(&MemoryOptions) -> Result<CacheSpec, CacheError>>;
    let of = |config: &str| -> Derive {
        let config = config.to_owned();
        Box::new(move |options| CacheSpec::for_options(config.as_bytes(), options))
    };
    let llama =
        r#"{"model_type":"llama","num_hidden_layers":1,"num_key_value_heads":1,"head_dim":64"#;
    let dense = of(&format!("{llama}}}"));
    let f32 = of(&format!(r#"{llama},"dtype":"float32"}}"#));
    let scheme = r#""quantization_config":{"kv_cache_scheme":{"num_bits":8,"type":"float"}}"#;
    let scheme = of(&format!(r#"{llama},"torch_dtype":"bfloat16",{scheme}}}"#));
    let narrow =
        of(r#"{"model_type":"llama","num_hidden_layers":1,"num_key_value_heads":1,"head_dim":40}"#);
    let gemma = of(
        r#"{"model_type":"gemma3_text","num_hidden_layers":6,"num_key_value_heads":1,"head_dim":32}"#,
    );
    let latent = of(r#"{"model_type":"deepseek_v3","num_hidden_layers":2}"#);
    let indexed = of(r#"{"model_type":"deepseek_v32","num_hidden_layers":2}"#);
    let falcon = of(r#"{"model_type":"falcon","new_decoder_architecture":true}"#);
    let state =
        of(r#"{"model_type":"lfm2","num_hidden_layers":1,"full_attn_idxs":[],"dtype":"bfloat16"}"#);
    let gguf_gemma: Derive = Box::new(|_| {
        gguf(&[
            ("general.architecture", "gemma3"),
            ("gemma3.block_count", "6"),
            ("gemma3.attention.head_count", "1"),
            ("gemma3.embedding_length", "32"),
            ("gemma3.attention.sliding_window", "4096"),
        ])
    });
    let (stored, vllm, llama_cpp) = (Engine::Stored, Engine::Vllm, Engine::LlamaCpp);
    let (bf16, fp8, q8) = (Some(CacheDtype::Bf16), Some(CacheDtype::Fp8), Some(CacheDtype::Q8_0));
    // The sizes in bytes at 10,000 tokens.
    let cases = [
        (&dense, stored, None, Some(128 * 10_000 * 2)),
        (&dense, stored, fp8, Some(128 * 10_000)),
        (&dense, vllm, None, Some(128 * 10_000 * 2)),
        (&dense, llama_cpp, None, Some(128 * 10_240 * 2)),
        (&dense, llama_cpp, q8, Some(128 * 10_240 * 34 / 32)),
        (&dense, llama_cpp, fp8, None),
        (&dense, vllm, q8, None),
        // Blocks of 32 elements do not divide the rows.
        (&narrow, llama_cpp, q8, None),
        (&f32, stored, None, Some(128 * 10_000 * 4)),
        (&f32, vllm, None, Some(128 * 10_000 * 2)),
        (&f32, llama_cpp, None, Some(128 * 10_240 * 2)),
        // Only vLLM reads the scheme of a checkpoint.
        (&scheme, vllm, None, Some(128 * 10_000)),
        (&scheme, vllm, bf16, Some(128 * 10_000 * 2)),
        (&scheme, stored, None, Some(128 * 10_000 * 2)),
        (&gemma, stored, None, Some(64 * (10_000 + 5 * 4_095) * 2)),
        // Five windows with a block more than the full layer, in groups of one layer.
        (&gemma, vllm, None, Some((5 * 626 + 625) * 16 * 64 * 2)),
        (&gemma, llama_cpp, None, None),
        (&gguf_gemma, llama_cpp, None, Some(64 * (10_240 + 5 * 4_608) * 2)),
        (&latent, vllm, None, Some(2 * 576 * 10_000 * 2)),
        (&latent, llama_cpp, None, Some(2 * 576 * 10_240 * 2)),
        (&indexed, stored, None, Some(2 * (576 + 128) * 10_000 * 2)),
        (&indexed, vllm, None, Some(157 * 64 * 2 * (576 * 2 + 132))),
        (&falcon, vllm, None, Some(32 * 71 * 2 * 64 * 10_000 * 2)),
        (&falcon, vllm, fp8, Some(32 * 71 * 2 * 64 * 10_000 * 2)),
        (&falcon, llama_cpp, None, None),
        (&gguf_gemma, vllm, None, None),
        // The inputs of a convolution are not stored in the dtype of the cache.
        (&state, stored, fp8, Some(2_560 * 3 * 2)),
        // A state has a second block for the prefixes.
        (&state, vllm, None, Some(2 * 2_560 * 2 * 2)),
    ];
    for (at_case, (spec, engine, cache_dtype, expected)) in cases.into_iter().enumerate() {
        let options = MemoryOptions { cache_dtype, engine, ..at(10_000) };
        let memory = Memory::new(0, spec(&options), options);
        assert_eq!(memory.total_bytes, expected, "case {at_case}: {memory:?}");
        assert_eq!(memory.unknown.is_some(), expected.is_none(), "case {at_case}");
    }
}

/// Values that change the cache in transformers, but are easily overlooked.
#[test]
fn unusual_configs_have_the_right_size_or_none() {
    let spec = |config: &str| CacheSpec::from_config_json(config.as_bytes());
    let unknown =
        |name: &str| Err(CacheError::UnknownArchitecture { architecture: name.to_owned() });
    let cases = [
        // The cache of a decoder includes its encoder.
        (
            r#"{"model_type":"vision-encoder-decoder","decoder":{"model_type":"gpt2"}}"#,
            unknown("vision-encoder-decoder"),
        ),
        (
            r#"{"model_type":"llama","per_layer_config":{"0":{"head_dim":64}}}"#,
            Err(CacheError::UnsupportedKey { key: "per_layer_config" }),
        ),
        (
            r#"{"model_type":"mistral","sliding_window":0}"#,
            Err(FormulaError::InvalidKey { key: "sliding_window" }.into()),
        ),
        (
            r#"{"model_type":"mistral","sliding_window":1}"#,
            Err(FormulaError::InvalidKey { key: "sliding_window" }.into()),
        ),
        (
            r#"{"model_type":"mistral","sliding_window":4096.5}"#,
            Err(FormulaError::InvalidKey { key: "sliding_window" }.into()),
        ),
        (
            r#"{"model_type":"gemma3","text_config":{"num_hidden_layers":"many"}}"#,
            Err(FormulaError::InvalidKey { key: "num_hidden_layers" }.into()),
        ),
        (
            r#"{"model_type":"llama","num_key_value_heads":-8}"#,
            Err(FormulaError::InvalidKey { key: "num_key_value_heads" }.into()),
        ),
        (
            r#"{"model_type":"llama","num_attention_heads":64,"hidden_size":63}"#,
            Err(FormulaError::InvalidKey { key: "head_dim" }.into()),
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(spec(config).map(|_| ()), expected, "{config}");
    }
    // Python writes infinite numbers.
    let infinite =
        r#"{"model_type":"mamba2","time_step_limit":[0.0,Infinity],"x":[-Infinity,NaN,"\"NaN"]}"#;
    assert_eq!(spec(infinite), spec(r#"{"model_type":"mamba2"}"#));
    assert_eq!(
        spec(r#"{"model_type":"llama","head_dim":NaN}"#),
        Err(FormulaError::InvalidKey { key: "head_dim" }.into())
    );
}

/// `MBartForCausalLM` of transformers 5.23 has 1,792 elements after 7 tokens with this configuration.
#[test]
fn a_decoder_without_an_encoder_has_no_cross_attention() {
    let mbart = |end: &str| {
        let sizes = r#""d_model":64,"decoder_layers":2,"decoder_attention_heads":4"#;
        elements(&format!(r#"{{"model_type":"mbart",{sizes}{end}}}"#), 7)
    };
    assert_eq!(mbart(r#","is_encoder_decoder":false"#), Ok(Some(1_792)));
    assert_eq!(mbart(r#","is_encoder_decoder":true"#), Ok(Some(3_584)));
    assert_eq!(mbart(""), Ok(Some(3_584)));
}

/// transformers adds a bias of 32 bits to the gates that the next block needs. Measured with transformers 5.23.
#[test]
fn a_gate_of_32_bits_is_a_state() {
    let config = r#"{"model_type":"deepseek_v4","dtype":"bfloat16","num_hidden_layers":4,"head_dim":16,
        "index_head_dim":16,"sliding_window":16,"compress_rates":{"compressed_sparse_attention":4,
        "heavily_compressed_attention":128},"layer_types":["heavily_compressed_attention",
        "heavily_compressed_attention","heavily_compressed_attention","compressed_sparse_attention"]}"#;
    assert_eq!(memory(config, at(7)).sequence_bytes(), Some(3_840));
}

/// A block of a cache is not a dtype of a model, whose states would have a fraction of a byte per element.
#[test]
fn blocks_are_not_a_dtype_in_a_configuration() {
    let growth = |dtype: &str| {
        let config = format!(
            r#"{{"model_type":"lfm2","full_attn_idxs":[1],"torch_dtype":"{dtype}","num_hidden_layers":2}}"#
        );
        let spec = CacheSpec::from_config_json(config.as_bytes()).unwrap();
        (spec.dtype, Memory::growth(&spec))
    };
    let known = growth("float16");
    assert_eq!(known.0, Some(CacheDtype::F16));
    assert!(known.1.is_some());
    for dtype in ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"] {
        assert!(dtype.parse::<CacheDtype>().unwrap().is_block());
        assert_eq!(growth(dtype), (None, known.1), "{dtype}");
    }
}

/// The cache grows by full layers, and windows and states have a fixed size.
#[test]
fn growth_separates_windows_and_states() {
    let growth =
        |config: &str| Memory::growth(&CacheSpec::from_config_json(config.as_bytes()).unwrap());
    let gemma = r#"{"model_type":"gemma3_text","num_hidden_layers":6,"num_key_value_heads":1,"head_dim":32}"#;
    assert_eq!(growth(gemma), Some((64 * 2, 64 * 2 * 5 * 4_095)));
    assert_eq!(
        growth(r#"{"model_type":"lfm2","full_attn_idxs":[]}"#),
        Some((0, 32 * 2_560 * 3 * 2))
    );
    assert_eq!(growth(r#"{"model_type":"t5"}"#), None);
    assert_eq!(growth(r#"{"model_type":"deepseek_v4"}"#), None);
}

#[test]
fn the_longest_context_fits_and_the_next_one_does_not() {
    let llama = r#"{"model_type":"llama","max_position_embeddings":8192,"dtype":"float16"}"#;
    let memory = memory(llama, MemoryOptions::default());
    assert_eq!(memory.context, 8_192);
    let token = 32 * 2 * 4_096 * 2;
    assert_eq!(memory.longest_context(token * 1_000), Some(1_000));
    assert_eq!(memory.longest_context(token * 1_001 - 1), Some(1_000));
    assert_eq!(memory.longest_context(token * 10_000), Some(8_192));
    assert_eq!(memory.longest_context(token - 1), Some(0));
}

#[test]
fn sizes_are_read_as_people_write_them() {
    let cases = [
        ("24GB", Some(24_000_000_000)),
        ("24G", Some(24_000_000_000)),
        ("24 gb", Some(24_000_000_000)),
        (" 80 GiB ", Some(80 << 30)),
        ("80Gi", Some(80 << 30)),
        ("1.5GB", Some(1_500_000_000)),
        ("23.6GiB", Some(25_340_307_046)),
        ("0.5k", Some(500)),
        ("1tib", Some(1 << 40)),
        ("7B", Some(7)),
        ("24", None),
        ("", None),
        ("GB", None),
        (".5GB", None),
        ("1.GB", None),
        ("1.2.3GB", None),
        ("-1GB", None),
        ("0GB", None),
        ("24i", None),
        ("24 XB", None),
        ("1e3GB", None),
        ("9999999999TB", None),
        ("99999999999999999999GB", None),
        ("0.0000000000000001GB", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_size(text), expected, "{text:?}");
    }
}

/// The answer for 1,000 bytes of weights and 128 bytes per token, for a maximum of 100 tokens.
#[test]
fn answers_are_true_false_or_unknown() {
    let config = |architecture: &str, maximum: &str| {
        format!(
            r#"{{"model_type":"{architecture}","num_hidden_layers":1,"num_key_value_heads":1,"head_dim":32{maximum}}}"#
        )
    };
    let maximum = r#","max_position_embeddings":100"#;
    let (llama, endless) = (config("llama", maximum), config("llama", ""));
    let unknown = config("brand_new", maximum);
    // Budget, context, answer, longest context, sequences, reason.
    let cases = [
        (&llama, 13_800, None, Some(true), Some(100), Some(1), false),
        (&llama, 13_799, None, Some(false), Some(99), Some(0), false),
        (&llama, 40_000, None, Some(true), Some(100), Some(3), false),
        (&llama, 1_000, None, Some(false), Some(0), Some(0), false),
        (&llama, 999, None, Some(false), Some(0), Some(0), false),
        (&llama, 13_800, Some(50), Some(true), Some(100), Some(2), false),
        // A context beyond the maximum never fits, for a reason that is not the memory.
        (&llama, 99_999, Some(101), Some(false), Some(100), Some(7), true),
        (&llama, 999, Some(101), Some(false), Some(0), Some(0), true),
        (&endless, 600_000, None, Some(true), Some(4_679), Some(1), false),
        (&unknown, 13_800, None, None, None, None, true),
        (&unknown, 999, None, Some(false), Some(0), None, false),
    ];
    for (config, budget, context, fits, longest, sequences, has_reason) in cases {
        let options = MemoryOptions { context, budget: Some(budget), ..MemoryOptions::default() };
        let spec = CacheSpec::from_config_json(config.as_bytes());
        let fit = Memory::new(1_000, spec, options).fit.unwrap();
        let found = (fit.fits, fit.longest_context, fit.sequences, fit.reason.is_some());
        assert_eq!(found, (fits, longest, sequences, has_reason), "{budget} {context:?}");
    }
    let none = CacheSpec::without_cache("pipeline");
    let options = MemoryOptions { budget: Some(1_000), ..MemoryOptions::default() };
    let fit = Memory::new(1_000, Ok(none), options).fit.unwrap();
    assert_eq!((fit.fits, fit.longest_context, fit.sequences), (Some(true), None, None));
}

/// vLLM leaves a tenth of each GPU to others, unless `--gpu-memory-utilization` says otherwise.
#[test]
fn vllm_uses_a_share_of_the_memory() {
    let config =
        br#"{"model_type":"llama","num_hidden_layers":1,"num_key_value_heads":1,"head_dim":32,
        "max_position_embeddings":64}"#;
    let fit = |budget, engine, share: &str| {
        let mut options =
            MemoryOptions { budget: Some(budget), engine, ..MemoryOptions::default() };
        options.set("gpuMemoryUtilization", share).unwrap();
        let spec = CacheSpec::for_options(config, &options);
        let fit = Memory::new(1_000, spec, options).fit.unwrap();
        (fit.budget, fit.usable, fit.fits)
    };
    // 64 tokens of 128 bytes, in blocks of 16 tokens.
    let needed = 1_000 + 64 * 128;
    assert_eq!(fit(needed, Engine::Stored, "0.9"), (needed, needed, Some(true)));
    assert_eq!(fit(needed, Engine::Vllm, "1"), (needed, needed, Some(true)));
    assert_eq!(fit(needed, Engine::Vllm, "0.9"), (needed, 8_272, Some(false)));
    assert_eq!(fit(10_214, Engine::Vllm, "0.9").2, Some(true));
    assert_eq!(fit(10_213, Engine::Vllm, "0.90").2, Some(false));
    for (text, shown) in [("0.9", "0.9"), (".95", "0.95"), ("1.0", "1"), ("0.1234567", "0.123456")]
    {
        let share: GpuShare = text.parse().unwrap();
        assert_eq!(share.to_string(), shown);
    }
    for text in
        ["0", "0.0", "1.1", "", ".", "-1", "+0.5", "0.9x", "0.1234567x", "nan", "90%", "0.+5"]
    {
        assert!(text.parse::<GpuShare>().is_err(), "{text}");
    }
}

/// A hostile configuration or option is an error, and no arithmetic overflows.
#[test]
fn hostile_numbers_have_no_blocks() {
    let largest = u64::MAX.to_string();
    let configs = [
        r#"{"model_type":"llama","num_key_value_heads":1,"head_dim":N}"#,
        r#"{"model_type":"gpt_oss","sliding_window":N}"#,
        r#"{"model_type":"gpt_oss","head_dim":1,"num_key_value_heads":1,"sliding_window":N}"#,
        r#"{"model_type":"lfm2","hidden_size":N,"full_attn_idxs":[1]}"#,
        r#"{"model_type":"qwen3_next","linear_num_key_heads":N}"#,
        r#"{"model_type":"falcon_h1","mamba_n_groups":N}"#,
        r#"{"model_type":"gpt_oss"}"#,
    ];
    for number in ["0", "1", "1099511627775", "1099511627776", "9223372036854775808", &largest] {
        let parsed = number.parse().unwrap();
        for config in configs {
            let json = config.replace('N', number);
            for vllm in [
                VllmOptions::default(),
                VllmOptions { gpus: parsed, ..VllmOptions::default() },
                VllmOptions { max_batched_tokens: Some(parsed), ..VllmOptions::default() },
                VllmOptions { block_size: Some(parsed), ..VllmOptions::default() },
            ] {
                for (context, batch) in [(1, 1), (parsed, 1), (1, parsed), (parsed, parsed)] {
                    let options = MemoryOptions {
                        context: Some(context),
                        batch: Some(batch),
                        engine: Engine::Vllm,
                        vllm,
                        budget: Some(parsed),
                        ..MemoryOptions::default()
                    };
                    let spec = CacheSpec::for_options(json.as_bytes(), &options);
                    let memory = Memory::new(parsed, spec, options);
                    assert!(memory.fit.is_some(), "{json}");
                }
            }
        }
    }
}
