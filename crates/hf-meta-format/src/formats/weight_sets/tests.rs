use super::*;

fn listed(root: &str, paths: &[&str]) -> ListedWeights {
    let file = |path: &&str| ListedFile { path: path.parse().unwrap(), size: 10 };
    let files: Vec<_> = paths.iter().map(file).collect();
    ListedWeights::new(Formats::built_in(), root.parse().ok().as_ref(), &files)
}

/// Returns the path of the model; `-` if there is none or the names are ambiguous.
fn main(paths: &[&str]) -> String {
    listed("", paths).main().map_or_else(|| "-".to_owned(), |set| set.path.to_string())
}

/// Lists of files, each with the path of its model.
const MODELS: [(&[&str], &str); 60] = [
    // KTransformers numbers files without their total. Other numbers may be steps.
    (&["model-00001.safetensors", "model-00002.safetensors"], "model-*.safetensors"),
    (&["model-00001.safetensors", "model-00003.safetensors"], "-"),
    (&["model-01000.safetensors", "model-02000.safetensors"], "-"),
    (&["epoch-00001.safetensors", "epoch-00002.safetensors"], "-"),
    (&["model-00001.safetensors"], "model-00001.safetensors"),
    (
        &["model-00001.safetensors", "model-00002.safetensors", "model.safetensors"],
        "model.safetensors",
    ),
    (&[], "-"),
    (&["model.onnx", "config.json"], "-"),
    (&["pytorch_model.bin", "config.json", "training_args.bin"], "pytorch_model.bin"),
    (&["pytorch_model.bin", "model.safetensors"], "model.safetensors"),
    // The names that training programs and other formats use.
    (
        &[
            "last.ckpt",
            "training_args.bin",
            "optimizer.pt",
            "scheduler.pt",
            "scaler.pt",
            "rng_state.pth",
            "rng_state_3.pth",
            "sampler.bin",
            "random_states_0.pt",
            "dl_state_dict.bin",
            "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        ],
        "last.ckpt",
    ),
    (&["tokenizer.bin", "vocab.bin", "stories15M.pt"], "stories15M.pt"),
    (&["custom.pth", "ggml-model-q4.bin", "for-tests-ggml-base.bin"], "custom.pth"),
    (&["custom.pth", "llama.ggmlv3.q4_0.bin", "llama.ggmlv3.q8_0.bin"], "custom.pth"),
    (&["custom.pth", "openvino_model.bin", "openvino_model.xml", "a.ncnn.bin"], "custom.pth"),
    (&["custom.pth", "model.onnx", "tf_model.h5", "saved_model.pb", "m.ckpt.index"], "custom.pth"),
    (&["custom.pth", "a.mlpackage/Data/com.apple.CoreML/weights/weight.bin"], "custom.pth"),
    // Only the path selects them.
    (&["optimizer.pt", "training_args.bin", "ggml-model-q4.bin", "openvino_model.bin"], "-"),
    (&["pytorch_model.bin", "model-Q8_0.gguf"], "model-Q8_0.gguf"),
    (&["residual.safetensors", "q4k-0.uqff", "config.json"], "-"),
    (&["residual.safetensors", "a/q4k-0.uqff"], "residual.safetensors"),
    (&["any.safetensors"], "any.safetensors"),
    (&["a.safetensors", "b.safetensors"], "-"),
    (&["a.safetensors", "b-00001-of-00001.safetensors"], "-"),
    (&["deep/down/any.safetensors"], "deep/down/any.safetensors"),
    (&["a/x.safetensors", "b/x.safetensors"], "-"),
    (&["any.safetensors", "checkpoint-5/any.safetensors"], "any.safetensors"),
    (
        &["adapter_model.safetensors", "checkpoint-5/adapter_model.safetensors"],
        "adapter_model.safetensors",
    ),
    (&["adapter_model.safetensors", "tokenizer.safetensors"], "adapter_model.safetensors"),
    (&["consolidated.safetensors", "vision/model.safetensors"], "consolidated.safetensors"),
    (&["consolidated-00001-of-00001.safetensors"], "consolidated-*-of-00001.safetensors"),
    (
        &["consolidated.safetensors.index.json", "consolidated-00001-of-00001.safetensors"],
        "consolidated.safetensors.index.json",
    ),
    (
        &[
            "unet/diffusion_pytorch_model.safetensors",
            "vae/diffusion_pytorch_model.safetensors",
            "text_encoder/model.safetensors",
            "v1-5-pruned.safetensors",
            "model_index.json",
        ],
        "unet/diffusion_pytorch_model.safetensors",
    ),
    (
        &[
            "transformer/diffusion_pytorch_model.safetensors.index.json",
            "unet/diffusion_pytorch_model.safetensors",
        ],
        "transformer/diffusion_pytorch_model.safetensors.index.json",
    ),
    (
        &[
            "unet/diffusion_pytorch_model.safetensors",
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/diffusion_pytorch_model.non_ema.safetensors",
        ],
        "unet/diffusion_pytorch_model.safetensors",
    ),
    (
        &[
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "vae/diffusion_pytorch_model.fp16.safetensors",
        ],
        "unet/diffusion_pytorch_model.fp16.safetensors",
    ),
    (
        &[
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/diffusion_pytorch_model.bf16.safetensors",
        ],
        "-",
    ),
    (
        &[
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/diffusion_pytorch_model.safetensors.index.bf16.json",
        ],
        "-",
    ),
    (&["prior/diffusion_pytorch_model.safetensors", "image_encoder/model.safetensors"], "-"),
    (
        &[
            "diffusion_pytorch_model.safetensors",
            "diffusion_pytorch_model.fp16.safetensors",
            "other.safetensors",
        ],
        "diffusion_pytorch_model.safetensors",
    ),
    (&["model.fp16.safetensors", "onnx/x.safetensors"], "model.fp16.safetensors"),
    (
        &["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        "model-*-of-00002.safetensors",
    ),
    (
        &[
            "model-00001-of-00001.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ],
        "-",
    ),
    (
        &["0_StaticEmbedding/model.safetensors", "2_Dense/model.safetensors", "modules.json"],
        "0_StaticEmbedding/model.safetensors",
    ),
    (&["0_StaticEmbedding/model.safetensors", "2_Dense/model.safetensors"], "-"),
    (
        &["adapter_model.safetensors", "adapter_model.safetensors.index.json"],
        "adapter_model.safetensors",
    ),
    (
        &["adapters.safetensors", "0000100_adapters.safetensors", "0000200_adapters.safetensors"],
        "adapters.safetensors",
    ),
    (
        &["0000100_adapters.safetensors", "0000200_adapters.safetensors"],
        "0000200_adapters.safetensors",
    ),
    (
        &["lora.safetensors", "lora-000001.safetensors", "lora-000002.safetensors"],
        "lora.safetensors",
    ),
    (&["lora-000009.safetensors", "lora-000010.safetensors"], "lora-000010.safetensors"),
    (&["lora.safetensors", "other-000001.safetensors"], "-"),
    (
        &["learned_embeds-steps-500.safetensors", "learned_embeds-steps-1000.safetensors"],
        "learned_embeds-steps-1000.safetensors",
    ),
    (
        &["learned_embeds-steps-500.safetensors", "learned_embeds.safetensors"],
        "learned_embeds.safetensors",
    ),
    (&["llama-7.safetensors", "llama-13.safetensors"], "-"),
    (
        &[
            "xl/unet/diffusion_pytorch_model.safetensors",
            "xl/vae/diffusion_pytorch_model.safetensors",
            "xl/model_index.json",
        ],
        "xl/unet/diffusion_pytorch_model.safetensors",
    ),
    (
        &[
            "xl/unet/diffusion_pytorch_model.safetensors",
            "xl/unet/diffusion_pytorch_model.fp16.safetensors",
        ],
        "xl/unet/diffusion_pytorch_model.safetensors",
    ),
    (
        &[
            "one/unet/diffusion_pytorch_model.safetensors",
            "two/unet/diffusion_pytorch_model.safetensors",
        ],
        "-",
    ),
    (&["pytorch_lora_weights.safetensors", "unet/diffusion_pytorch_model.safetensors"], "-"),
    (&["consolidated.safetensors", "consolidated_ema.safetensors"], "-"),
    (
        &["pytorch_lora_weights.safetensors", "other.safetensors"],
        "pytorch_lora_weights.safetensors",
    ),
];

#[test]
fn the_model_is_found_by_names() {
    for (paths, expected) in MODELS {
        assert_eq!(main(paths), expected, "{paths:?}");
    }
}

#[test]
fn a_folder_is_searched_like_a_repository() {
    let paths = [
        "a/b/unet/diffusion_pytorch_model.safetensors",
        "a/b/vae/diffusion_pytorch_model.safetensors",
    ];
    assert_eq!(listed("a/b", &paths).main().unwrap().path.as_str(), paths[0]);
    assert_eq!(listed("a", &paths).main().unwrap().path.as_str(), paths[0]);
    let paths = ["a/x/any.safetensors", "a/y/any.safetensors"];
    assert_eq!(listed("a", &paths).main(), None);
}

#[test]
fn sets_are_listed_with_their_files() {
    let paths = [
        "b.safetensors",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "x/model.safetensors.index.json",
        "x/odd.safetensors",
        "y/model-00001-of-00001.safetensors",
        "y/model-00001-of-00002.safetensors",
        "y/model-00002-of-00002.safetensors",
        "y/model.safetensors.index.json",
    ];
    let found = listed("", &paths).sets;
    let found: Vec<_> = found.iter().map(|set| (set.path.as_str(), set.files, set.bytes)).collect();
    let expected = [
        ("b.safetensors", 1, 10),
        ("model.safetensors.index.json", 2, 20),
        ("x/model.safetensors.index.json", 0, 0),
        ("x/odd.safetensors", 1, 10),
        ("y/model-*-of-00001.safetensors", 1, 10),
        ("y/model-*-of-00002.safetensors", 2, 20),
        ("y/model.safetensors.index.json", 0, 0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn numbers_in_paths_are_in_ascending_order() {
    let paths = [
        "2_Dense/a.gguf",
        "ck-500/a.gguf",
        "ck-1000/a.gguf",
        "ck-1000/b.gguf",
        "ck-01500/a.gguf",
        "ck/a.gguf",
    ];
    let sorted = listed("", &paths).sets;
    let sorted: Vec<_> = sorted.iter().map(|set| set.path.as_str()).collect();
    assert_eq!(sorted, paths);
}

/// The smaller one is not the model because it is smaller.
#[test]
fn two_versions_of_a_quantized_model_are_ambiguous() {
    assert_eq!(main(&["Model-Q4_K_M-v1.gguf", "Model-Q4_K_M-v2.gguf"]), "-");
    assert_eq!(main(&["Model-Q4_K_M-v2.gguf", "Model-Q8_0-v2.gguf"]), "Model-Q4_K_M-v2.gguf");
}

#[test]
fn incomplete_shards_without_an_index_are_rejected() {
    let shards = |numbers: &[&str]| {
        let paths: Vec<_> = numbers.iter().map(|n| format!("m-{n}-of-00003.safetensors")).collect();
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        listed("", &paths).main().unwrap().shards().map(|shards| shards.len())
    };
    assert_eq!(shards(&["00003", "00001", "00002"]), Ok(3));
    assert_eq!(shards(&["00000", "00001", "00002"]), Ok(3));
    for numbers in [&["00001", "00003"][..], &["00001"], &["00002", "00003", "00004"]] {
        assert_eq!(shards(numbers).unwrap_err().total, 3, "{numbers:?}");
    }
    let missing = |numbers: &[&str]| shards(numbers).unwrap_err().first_missing;
    for (numbers, path) in [
        (&["00001", "00003"][..], "m-00002-of-00003.safetensors"),
        (&["00002", "00003"], "m-00001-of-00003.safetensors"),
        (&["00000", "00001"], "m-00002-of-00003.safetensors"),
    ] {
        assert_eq!(missing(numbers).unwrap(), path, "{numbers:?}");
    }
    let twice = shards(&["00001", "000001", "00002", "00003"]).unwrap_err();
    assert_eq!(
        (twice.first_missing.as_deref(), &*twice.to_string()),
        (None, "a shard number appears twice")
    );
    let error: Box<dyn std::error::Error> = shards(&["00002", "00003"]).unwrap_err().into();
    assert_eq!(error.to_string(), "shard `m-00001-of-00003.safetensors` is missing");
}

#[test]
fn files_numbered_without_their_total_are_one_set() {
    let paths = ["a/model-00001.safetensors", "a/model-00002.safetensors"];
    let found = listed("", &paths);
    let [set] = &found.sets[..] else { panic!("{:?}", found.sets) };
    assert_eq!((set.path.as_str(), set.files, set.bytes), ("a/model-*.safetensors", 2, 20));
    let shards = set.shards().unwrap();
    assert_eq!(shards.iter().map(RepoPath::as_str).collect::<Vec<_>>(), paths);
    assert!(is_shard_pattern(Formats::built_in(), &set.path));
}

#[test]
fn sets_that_were_read_are_not_listed_as_other_sets() {
    let paths = ["a.safetensors", "b-00001-of-00002.safetensors", "b-00002-of-00002.safetensors"];
    let sets = listed("", &paths).sets;
    let read = |paths: &[&str]| paths.iter().map(|path| path.parse().unwrap()).collect();
    let part_of =
        |files: &BTreeSet<_>| sets.iter().map(|set| set.is_part_of(files)).collect::<Vec<_>>();
    assert_eq!(part_of(&read(&paths[..1])), [true, false]);
    assert_eq!(part_of(&read(&paths[..2])), [true, false]);
    assert_eq!(part_of(&read(&paths[1..])), [false, true]);
}

/// A projector has its own quantization, which does not belong to the model.
#[test]
fn only_models_have_quantizations() {
    let paths = ["a-Q8_0.gguf", "a-Q4_K_M.gguf", "b-Q8_0.gguf", "mmproj-F16.gguf", "c.safetensors"];
    let found = listed("", &paths);
    assert_eq!(found.quantizations(), ["Q4_K_M", "Q8_0"]);
    let one = found.of_quantization("q8_0").sets;
    let one: Vec<_> = one.iter().map(|set| set.path.as_str()).collect();
    assert_eq!(one, ["a-Q8_0.gguf", "b-Q8_0.gguf"]);
}

#[test]
fn an_index_may_omit_shards_of_its_model() {
    let paths = [
        "m-00001-of-00003.safetensors",
        "m-00002-of-00003.safetensors",
        "m-00003-of-00003.safetensors",
    ];
    let other = ["m.safetensors", "n-00001-of-00003.safetensors", "x/m-00001-of-00003.safetensors"];
    let found = listed("", &[&paths[..], &other].concat());
    let named: Vec<RepoPath> = paths[..2].iter().map(|path| path.parse().unwrap()).collect();
    let unindexed = found.unindexed_shards(&named);
    assert_eq!(unindexed.iter().map(RepoPath::as_str).collect::<Vec<_>>(), &paths[2..]);
}

#[test]
fn a_folder_has_the_files_below_it() {
    let is_below = |path: &str, folder: &str| {
        let file = ListedFile { path: path.parse().unwrap(), size: 1 };
        file.is_below(folder.parse().ok().as_ref())
    };
    for (path, folder, expected) in [
        ("a/x", "a", true),
        ("a/b/x", "a", true),
        ("a/b/x", "a/b", true),
        ("ab/x", "a", false),
        ("a", "a", false),
        ("x", "", true),
    ] {
        assert_eq!(is_below(path, folder), expected, "{path} below {folder}");
    }
}

#[test]
fn shards_are_recognized_by_name() {
    let path = |path: &str| path.parse::<RepoPath>().unwrap();
    assert_eq!(shard_number(&path("m-00001-of-00002.safetensors")), Some((1, 2)));
    for other in ["m.safetensors", "m-00001-of-00002.onnx"] {
        assert_eq!(shard_number(&path(other)), None, "{other}");
    }
    assert!(is_shard_pattern(Formats::built_in(), &path("m-*-of-00002.gguf")));
    assert!(!is_shard_pattern(Formats::built_in(), &path("m-*-of-00002.onnx")));
    assert!(!is_shard_pattern(Formats::built_in(), &path("m-00001-of-00002.gguf")));
}

#[test]
fn other_formats_are_counted() {
    let paths = [
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "training_args.bin",
        "checkpoint-5/optimizer.pt",
        "checkpoint-5/rng_state_0.pth",
        "onnx/model.onnx",
        "openvino/openvino_model.bin",
        "x.Q4_K_M.GGUF",
        "model.safetensors",
        "config.json",
        "README",
    ];
    let file = |path: &str| ListedFile { path: path.parse().unwrap(), size: 1 };
    let counted = count_unsupported(&paths.map(file));
    let counted: Vec<_> = counted.iter().map(|other| (other.format, other.files)).collect();
    let expected =
        [("PyTorch (.bin)", 2), ("GGUF (.gguf)", 1), ("ONNX (.onnx)", 1), ("OpenVINO (.bin)", 1)];
    assert_eq!(counted, expected);
}

/// The `Trainer` keeps a few checkpoints, of which the last one is the result.
#[test]
fn the_last_checkpoint_of_a_run_is_the_main_set() {
    let main = |root: Option<&str>, paths: &[&str]| {
        let files = paths.iter().map(|path| ListedFile { path: path.parse().unwrap(), size: 1 });
        let root = root.map(|root| root.parse().unwrap());
        let listed =
            ListedWeights::new(Formats::built_in(), root.as_ref(), &files.collect::<Vec<_>>());
        let found = listed.checkpoints().map(|(folder, count)| format!("{folder} of {count}"));
        (listed.main().map(|set| set.path.to_string()), found)
    };
    let file = |text: &str| Some(text.to_owned());
    let run = ["checkpoint-500/model.safetensors", "checkpoint-1000/model.safetensors"];
    let last = (file("checkpoint-1000/model.safetensors"), file("checkpoint-1000 of 2"));
    assert_eq!(main(None, &run), last);
    let states = [&run[..], &["checkpoint-1000/optimizer.pt", "checkpoint-1000/scheduler.pt"]];
    assert_eq!(main(None, &states.concat()), last);
    // The result of the run, one checkpoint alone, and a chosen one are no checkpoints of several.
    let result = [&run[..], &["model.safetensors"]].concat();
    assert_eq!(main(None, &result), (file("model.safetensors"), None));
    assert_eq!(main(None, &run[..1]), (file(run[0]), None));
    assert_eq!(main(Some("checkpoint-500"), &run[..1]), (file(run[0]), None));
    let adapters = [
        "out/checkpoint-9/adapter_model.safetensors",
        "out/checkpoint-10/adapter_model.safetensors",
    ];
    assert_eq!(main(None, &adapters), (file(adapters[1]), file("out/checkpoint-10 of 2")));
    let shards = [
        "checkpoint-2/model.safetensors.index.json",
        "checkpoint-2/model-00001-of-00001.safetensors",
    ];
    let shards = [&shards[..], &["checkpoint-1/model.safetensors"]].concat();
    assert_eq!(main(None, &shards).0, file("checkpoint-2/model.safetensors.index.json"));
    // Two runs, or other weights, remain a choice.
    for others in [
        ["a/checkpoint-1/model.safetensors", "b/checkpoint-2/model.safetensors"],
        ["checkpoint-1/model.safetensors", "x/model.safetensors"],
    ] {
        assert_eq!(main(None, &others), (None, None), "{others:?}");
    }
    for name in
        ["checkpoint-/model.safetensors", "checkpoint-99999999999999999999/model.safetensors"]
    {
        assert_eq!(main(None, &[run[0], name]), (None, None), "{name}");
    }
}
