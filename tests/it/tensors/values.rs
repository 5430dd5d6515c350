//! Checks of values, and comparisons of two models by content.

mod pairs;

use std::fs;

use hf_meta::{Client, Finding, Source, ValueCheck, ValueReport};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{client, hex};

/// The rows and columns of the matrices: 8 MiB each, of which a sample reads 8 blocks of 16 KiB.
const ROWS: usize = 2_048;

const COLUMNS: usize = 1_024;

/// The values of a model: two matrices, a vector and the scale of a matrix.
#[derive(Clone)]
struct Values {
    first: Vec<f32>,
    second: Vec<f32>,
    bias: Vec<f32>,
    scale: Vec<f32>,
}

impl Values {
    fn new() -> Self {
        // No value is zero.
        let value = |at: usize| {
            let number = u16::try_from(at * 7_919 % 20_011).unwrap();
            (f32::from(number) - 10_005.5) / 1e6
        };
        let matrix = |seed: usize| (0..ROWS * COLUMNS).map(|at| value(at + seed)).collect();
        let (bias, scale) = ((0..COLUMNS).map(value).collect(), vec![0.5; 16]);
        Self { first: matrix(1), second: matrix(2), bias, scale }
    }

    /// The two upper bytes of each number.
    fn bf16_file(&self) -> Vec<u8> {
        let file = self.file();
        let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
        let halves = tensors.iter().map(|(name, tensor)| {
            let bytes = tensor.data().chunks(4).flat_map(|number| [number[2], number[3]]);
            (name.to_owned(), tensor.shape().to_vec(), bytes.collect::<Vec<_>>())
        });
        let halves: Vec<_> = halves.collect();
        let views = halves.iter().map(|(name, shape, bytes)| {
            (&**name, TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn file(&self) -> Vec<u8> {
        let tensors: [(&str, &[f32], Vec<usize>); 4] = [
            ("first.weight", &self.first, vec![ROWS, COLUMNS]),
            ("second.weight", &self.second, vec![ROWS, COLUMNS]),
            ("bias", &self.bias, vec![COLUMNS]),
            ("first.weight_scale", &self.scale, vec![16]),
        ];
        let bytes = tensors.each_ref().map(|(_, values, _)| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()
        });
        let views = tensors.iter().zip(&bytes).map(|((name, _, shape), bytes)| {
            (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }
}

async fn check(values: &Values, check: ValueCheck) -> ValueReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, values.file()).unwrap();
    Client::new().unwrap().source(Source::Local(path)).check_values(check).await.unwrap()
}

#[tokio::test]
async fn planted_faults_are_found_by_a_sample_or_by_all_values() {
    let (sound, both) = (Values::new(), [ValueCheck::Sample, ValueCheck::All]);
    for part in both {
        let report = check(&sound, part).await;
        assert_eq!(report.findings, [], "{part}");
        assert_eq!((report.tensors, report.unchecked), (4, 0), "{part}");
    }
    let sample = check(&sound, ValueCheck::Sample).await;
    // A vector, a scale, and 8 blocks of each matrix.
    assert_eq!(sample.bytes_checked, 4 * 1_024 + 4 * 16 + 2 * 8 * 16_384);
    let share = |percent: usize| ROWS * COLUMNS * percent / 100;
    let mut faults: Vec<(&str, Values, bool, &str)> = Vec::new();
    let mut plant = |name, is_sampled, message, change: &dyn Fn(&mut Values)| {
        let mut values = sound.clone();
        change(&mut values);
        faults.push((name, values, is_sampled, message));
    };
    plant("NaN in a vector", true, "`bias` has NaN values: 1 of 1,024", &|values| {
        values.bias[700] = f32::NAN;
    });
    plant("a negative scale", true, "negative scales: 1 of 16", &|values| values.scale[3] = -0.5);
    plant("a scale of zero", true, "scales of zero: 1 of 16", &|values| values.scale[3] = 0.0);
    plant("an infinite matrix", true, "infinite values", &|values| {
        values.first.fill(f32::INFINITY);
    });
    plant("a zero matrix", true, "`second.weight` has only zeros", &|values| {
        values.second.fill(0.0);
    });
    plant("a constant matrix", true, "`second.weight` has only one number", &|values| {
        values.second.fill(0.1);
    });
    plant("a third of a matrix", true, "`first.weight` has blocks of zeros", &|values| {
        values.first[..share(34)].fill(0.0);
    });
    // A sample finds most of such faults: this one, but not the same at the start of the matrix.
    plant("10 % of a matrix", true, "`first.weight` has blocks of zeros", &|values| {
        values.first[share(10)..share(20)].fill(0.0);
    });
    plant("1 % of a matrix", false, "`first.weight` has blocks of zeros", &|values| {
        values.first[4_096..4_096 + share(1)].fill(0.0);
    });
    plant("NaN in a matrix", false, "`first.weight` has NaN values: 1 of 2,097,152", &|values| {
        values.first[999] = f32::NAN;
    });
    for (name, values, is_sampled, message) in faults {
        for part in both {
            let found = check(&values, part).await.findings;
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            if is_sampled || part == ValueCheck::All {
                assert!(
                    found.iter().any(|text| text.contains(message)),
                    "{name}, {part}: {found:?}"
                );
            }
        }
    }
}

/// Returns a file of numbers of 32 bits, each tensor with a name, shape and two values that alternate.
fn alternating(tensors: &[(&str, [usize; 2], [f32; 2])]) -> Vec<u8> {
    let bytes = tensors.iter().map(|(_, shape, values)| {
        let values = values.iter().cycle().take(shape[0] * shape[1]);
        values.flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()
    });
    let bytes: Vec<_> = bytes.collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        let dtype = if name.ends_with("_packed") { Dtype::I32 } else { Dtype::F32 };
        (*name, TensorView::new(dtype, shape.to_vec(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// Infinite bounds of `Gemma4ClippableLinear`, and scales whose writers choose the sign: MLX, and `AutoRound` in the layouts
/// of GPTQ and `compressed-tensors`. The same values in other tensors are faults.
#[test]
fn values_that_are_faults_in_other_tensors_are_sound() {
    const INFINITE: [f32; 2] = [f32::INFINITY, f32::NEG_INFINITY];

    let cases: [(&str, &[_], &[&str]); 5] = [
        (
            "bounds",
            &[
                ("m.q_proj.linear.weight", [64, 64], [0.5, -0.5]),
                ("m.q_proj.input_min", [1, 1], INFINITE),
                ("m.q_proj.output_max", [1, 1], INFINITE),
                ("activation_post_process.min_val", [1, 1], INFINITE),
                ("attn.bias", [64, 64], INFINITE),
            ],
            &[],
        ),
        ("mlx", &[("m.q_proj.scales", [64, 1], [0.5, -0.5])], &[]),
        (
            "packed",
            &[
                ("m.q_proj.weight_packed", [64, 8], [1.0, 2.0]),
                ("m.q_proj.weight_scale", [64, 1], [0.5, -0.5]),
            ],
            &[],
        ),
        (
            "new",
            &[
                ("m.down_proj_bias", [64, 64], [0.0; 2]),
                ("vit.position_embeddings", [64, 64], [0.0; 2]),
                ("m.q_proj.lora_B.weight", [64, 64], [0.0; 2]),
            ],
            &[],
        ),
        (
            "faults",
            &[
                ("m.q_proj.weight", [64, 64], INFINITE),
                ("m.k_proj.weight", [64, 64], [0.0; 2]),
                ("m.k_proj.weight_scale", [64, 1], [0.5, -0.5]),
                ("table", [1, 2], INFINITE),
            ],
            &[
                "error: tensor `m.q_proj.weight` has infinite values",
                "warning: tensor `m.k_proj.weight` has only zeros",
                "warning: tensor `m.k_proj.weight_scale` has negative scales",
                "warning: tensor `table` has infinite values",
            ],
        ),
    ];
    let hub = LocalHub::start([]).unwrap();
    for (name, tensors, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        fs::write(&path, alternating(tensors)).unwrap();
        for part in ["sample", "all"] {
            let part = format!("--values={part}");
            let found = run(&hub, &["verify", &part, &path.display().to_string()]).stdout;
            for line in expected {
                assert!(found.contains(line), "{name}: {found}");
            }
            let values = found.lines().filter(|line| line.contains("values read"));
            assert_eq!(values.count(), expected.len(), "{name}: {found}");
        }
    }
}

/// Numbers of another model, and a flipped bit, are numbers.
#[test]
fn other_bytes_are_found_by_their_hash_only() {
    let sound = Values::new();
    let mut flipped = sound.clone();
    flipped.second[4_711] = f32::from_bits(flipped.second[4_711].to_bits() ^ 1);
    let mut other = sound.clone();
    other.first.reverse();
    let mut zeros = sound.clone();
    zeros.first[4_096..4_096 + ROWS * COLUMNS / 100].fill(0.0);
    let file = sound.file();
    let hash = hex(Sha256::digest(&file));
    let repo = Repo::new("org/model")
        .file("1.safetensors", File::from_bytes(file.clone()).hash(&hash))
        .file("2.safetensors", File::from_bytes(file).hash(&hash));
    let hub = LocalHub::start([repo]).unwrap();
    for (name, values, is_number) in [
        ("nothing", &sound, true),
        ("a flipped bit", &flipped, true),
        ("a shard of another model", &other, true),
        ("1 % of a matrix", &zeros, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1.safetensors"), sound.file()).unwrap();
        fs::write(folder.path().join("2.safetensors"), values.file()).unwrap();
        let local = format!("{}/", folder.path().display());
        let against = run(&hub, &["verify", &local, "--against", "org/model"]);
        let is_same = name == "nothing";
        assert_eq!(against.code, i32::from(!is_same), "{name}: {}", against.stdout);
        assert_eq!(against.stdout.contains("differs: 2.safetensors: SHA-256"), !is_same, "{name}");
        let second = format!("{local}2.safetensors");
        let all = run(&hub, &["verify", "--values=all", &second]);
        assert_eq!(!all.stdout.contains("blocks of zeros"), is_number, "{name}: {}", all.stdout);
        assert_eq!(all.code, 0, "{name}: {}", all.stdout);
    }
}

#[test]
fn the_command_checks_values_and_says_what_was_read() {
    let mut values = Values::new();
    let sound = File::from_bytes(values.file());
    values.bias[7] = f32::NAN;
    let corrupt = File::from_bytes(values.file());
    let hub = LocalHub::start([
        Repo::new("org/sound").file("model.safetensors", sound),
        Repo::new("org/corrupt").file("model.safetensors", corrupt),
    ])
    .unwrap();
    let sound = run(&hub, &["verify", "--values", "org/sound"]).data();
    let line = "values: sampled 266.3 kB, 1.59 % of 16.8 MB, in ";
    assert!(sound.lines().any(|found| found.starts_with(line)), "{sound}");
    let all = run(&hub, &["verify", "--values=all", "org/sound"]).data();
    assert!(all.contains("values: checked 16.8 MB of 16.8 MB"), "{all}");
    let corrupt = run(&hub, &["verify", "--values", "org/corrupt"]);
    assert_eq!(corrupt.code, 1);
    let line = "error: tensor `bias` has NaN values: 1 of 1,024 values read, the first at index 7";
    assert!(corrupt.stdout.contains(line), "{}", corrupt.stdout);
    let json = run(&hub, &["verify", "--values=sample", "org/corrupt", "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&json["values"]["check"], &json["values"]["tensors"]),
        (&"sample".into(), &4.into())
    );
    assert!(
        json["findings"].as_array().unwrap().iter().any(|found| found["kind"] == "invalidValues")
    );
    assert_eq!(json["valid"], false);
    let unknown = run(&hub, &["verify", "--values=some", "org/sound"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
}

/// A cache of pickles, and packed words.
#[tokio::test]
async fn values_that_cannot_be_read_are_not_checked() {
    let bytes =
        super::write_file(&[("qweight", Dtype::I32, &[64, 64]), ("scales", Dtype::F16, &[4, 64])]);
    let hub = LocalHub::start([
        Repo::new("org/packed").file("model.safetensors", File::from_bytes(bytes))
    ])
    .unwrap();
    let report = client(&hub).model("org/packed").check_values(ValueCheck::All).await.unwrap();
    assert_eq!((report.tensors, report.unchecked, report.bytes_checked), (1, 1, 512));
    let is_scale = |found: &Finding| found.to_string().contains("`scales`");
    assert!(report.findings.iter().all(is_scale), "{:?}", report.findings);
}

/// The hash covers the data of a file, so all of its bytes are needed, even those whose values cannot be checked.
#[tokio::test]
async fn data_have_the_hash_that_the_metadata_state() {
    let tensors = [("packed", Dtype::I32, &[64, 64][..]), ("w", Dtype::F8_E8M0, &[4, 64])];
    let file = super::write_file(&tensors);
    let data = 8 + usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let hash = hex(Sha256::digest(&file[data..]));
    let parsed = safetensors::SafeTensors::deserialize(&file).unwrap();
    let with_hash = |hash: &str| {
        let metadata = [("modelspec.hash_sha256".to_owned(), hash.to_owned())].into();
        safetensors::serialize(parsed.iter(), Some(metadata)).unwrap()
    };
    let other = format!("0x{}", "0".repeat(64));
    let hub = LocalHub::start([
        Repo::new("org/right")
            .file("model.safetensors", File::from_bytes(with_hash(&format!("0x{hash}")))),
        Repo::new("org/wrong").file("model.safetensors", File::from_bytes(with_hash(&other))),
        Repo::new("org/none").file("model.safetensors", File::from_bytes(with_hash("abc"))),
    ])
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("x.safetensors");
    fs::write(&local, with_hash(&other)).unwrap();
    let local = local.display().to_string();
    let message = format!(
        "model.safetensors` do not have the SHA-256 in `modelspec.hash_sha256`, but 0x{hash}"
    );
    for (source, part, is_wrong) in [
        ("org/right", "all", false),
        ("org/none", "all", false),
        ("org/wrong", "sample", false),
        ("org/wrong", "all", true),
        (&local, "all", true),
    ] {
        let ran = run(&hub, &["verify", &format!("--values={part}"), source]);
        let is_found = ran
            .stdout
            .contains(&message.replace("model.", if source == local { "x." } else { "model." }));
        assert_eq!(
            (is_found, ran.code),
            (is_wrong, i32::from(is_wrong)),
            "{source}: {}",
            ran.stdout
        );
    }
    let report = client(&hub).model("org/wrong").check_values(ValueCheck::All).await.unwrap();
    // Only the values of one tensor were checked.
    assert_eq!((report.tensors, report.bytes_checked, report.findings.len()), (1, 256, 1));
}

/// Returns a pipeline with a component whose values are invalid.
fn pipeline(vae: &Values) -> Repo {
    let index = serde_json::json!({
        "_class_name": "FluxPipeline",
        "text_encoder": ["transformers", "CLIPTextModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    });
    let sound = || File::from_bytes(Values::new().file());
    let repo = Repo::new("org/pipeline")
        .file("model_index.json", File::from_bytes(index.to_string()))
        .file("text_encoder/model.safetensors", sound())
        .file("vae/diffusion_pytorch_model.safetensors", File::from_bytes(vae.file()));
    ["text_encoder", "vae"].iter().fold(repo, |repo, folder| {
        repo.file(&format!("{folder}/config.json"), File::from_bytes("{}"))
    })
}

/// The tensors of the components have the same names.
#[tokio::test]
async fn the_values_of_all_components_are_checked_and_headers_are_read_once() {
    let mut vae = Values::new();
    vae.bias[7] = f32::NAN;
    let hub = LocalHub::start([pipeline(&vae)]).unwrap();
    let model = client(&hub).model("org/pipeline");
    let plain = model.verify().await.unwrap();
    let requests = hub.log().len();
    for check in [ValueCheck::Sample, ValueCheck::All] {
        hub.clear_log();
        let report = model.verify().values(check).await.unwrap();
        let values = report.values.as_ref().unwrap();
        assert_eq!((values.tensors, values.unchecked, &values.reason), (8, 0, &None));
        let is_nan = |found: &Finding| matches!(found, Finding::InvalidValues { .. });
        let found = report.sets.iter().map(|set| set.findings.iter().any(is_nan));
        let paths = report.sets.iter().map(|set| set.path.to_string());
        let found: Vec<_> = paths.zip(found).collect();
        let expected = [
            ("text_encoder/model.safetensors".to_owned(), false),
            ("vae/diffusion_pytorch_model.safetensors".to_owned(), true),
        ];
        assert_eq!(found, expected);
        // Each range is a request to the Hub and one to the CDN.
        let more = usize::try_from(2 * values.ranges).unwrap();
        assert_eq!(hub.log().len(), requests + more, "{check}");
    }
    assert!(plain.values.is_none());
}
