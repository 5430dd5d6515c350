//! The memory of several models, and of models with several parts.
//!
//! Add a test here if the result has a row per model, or is a sum.

use serde_json::Value;

use super::super::run;
use super::{DENSE, hub, repo};
use crate::count::quantization::tensors;
use crate::hub::{File, LocalHub, Repo};

/// A pipeline needs the memory of all components, none of which stores a cache.
#[test]
fn a_pipeline_is_the_sum_of_its_components() {
    let weights = |rows: u64| tensors(&[("w.weight", "F16", &[rows, 500_000], 2)]);
    let index = r#"{"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"],
        "vae":["diffusers","AutoencoderKL"],"text_encoder":["transformers","CLIPTextModel"],
        "safety_checker":["stable_diffusion","SafetyChecker"],"image_encoder":[null,null]}"#;
    let pipeline = Repo::new("org/pipeline")
        .file("model_index.json", File::from_bytes(index))
        .file("unet/diffusion_pytorch_model.safetensors", weights(30))
        .file("unet/diffusion_pytorch_model.fp16.safetensors", weights(15))
        .file("unet/config.json", File::from_bytes(r#"{"_class_name":"UNet2DConditionModel"}"#))
        .file("vae/diffusion_pytorch_model.bin", File::from_bytes("not read"))
        .file("vae/diffusion_pytorch_model.safetensors", weights(3))
        .file("text_encoder/model.safetensors", weights(5))
        .file("safety_checker/model.safetensors", weights(2))
        .file("image_encoder/model.safetensors", weights(50));
    let hub = LocalHub::start([pipeline]).unwrap();
    let output = run(&hub, &["org/pipeline", "--fit", "39MB"]);
    assert_eq!(output.code, 1);
    assert!(output.stdout.contains("39.0 MB: no, the weights do not fit"), "{}", output.stdout);
    assert!(!output.stdout.contains('?'), "{}", output.stdout);
    let rows = output.stdout.lines().filter(|line| line.contains(".safetensors")).count();
    assert_eq!(rows, 4, "{}", output.stdout);
    let fits = run(&hub, &["org/pipeline", "--fit", "40MB", "--json", "--summary"]);
    assert_eq!(fits.code, 0);
    let json: Value = serde_json::from_str(&fits.stdout).unwrap();
    let memory = &json["memory"];
    assert_eq!(
        (&memory["weightBytes"], &memory["totalBytes"]),
        (&40_000_000.into(), &40_000_000.into())
    );
    assert_eq!(memory["components"][3]["path"], "vae/diffusion_pytorch_model.safetensors");
    assert_eq!(memory["components"][3]["weightBytes"], 3_000_000);
    // One component alone is what the caller asked for.
    let one = run(&hub, &["org/pipeline", "--path", "unet", "--json", "--summary", "--memory"]);
    let json: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(json["memory"]["totalBytes"], 30_000_000);
}

/// Returns the cells of the CSV rows by their headings.
fn cells(csv: &str, names: &[&str]) -> Vec<Vec<String>> {
    let mut rows = csv.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let headings = rows.next().unwrap();
    let at = |name: &&str| headings.iter().position(|heading| heading == name).unwrap();
    let columns: Vec<_> = names.iter().map(at).collect();
    rows.map(|row| columns.iter().map(|at| row[*at].clone()).collect()).collect()
}

/// A table states the context of each answer, the reason of a `?`, and how many models fit.
#[test]
fn several_models_are_compared_in_a_table() {
    let old = repo("org/old", r#"{"model_type":"gpt2","torch_dtype":"float16"}"#);
    let (dense, unknown) =
        (repo("org/dense", DENSE), repo("org/unknown", r#"{"model_type":"brand_new"}"#));
    let pipeline = Repo::new("org/pipe")
        .file(
            "model_index.json",
            File::from_bytes(r#"{"unet":["diffusers","UNet2DConditionModel"]}"#),
        )
        .file("unet/diffusion_pytorch_model.safetensors", tensors(&[("w", "F16", &[9], 2)]));
    let hub = LocalHub::start([old, dense, unknown, pipeline]).unwrap();
    let names = ["org/dense", "org/old", "org/unknown", "org/pipe"];
    let list = |args: &[&str]| run(&hub, &[&names[..], args].concat());
    let table = list(&["--fit", "1GB"]);
    let lines: Vec<_> = table.stdout.lines().collect();
    assert_eq!(table.code, 1);
    assert!(lines[0].contains("  context  ") && lines[0].ends_with("reason"), "{}", table.stdout);
    assert!(lines[1].contains(" 8,192 ") && lines[1].contains("yes"), "{}", table.stdout);
    assert!(lines[2].contains(" 4,096 (assumed) "), "{}", table.stdout);
    assert!(lines[3].contains(" ? "), "{}", table.stdout);
    assert!(
        lines[3].ends_with("the cache of architecture `brand_new` is unknown"),
        "{}",
        table.stdout
    );
    assert!(!lines[4].contains("4,096"), "a pipeline stores no cache: {}", table.stdout);
    let card = "cards of 1 GB have 1 GiB (1.1 GB): --fit 1GiB";
    assert_eq!(lines[5], format!("1.0 GB: 3 of 4 fit, 0 do not fit, 1 unknown; {card}"));
    // Equal contexts get a column only if one is assumed.
    let equal = run(&hub, &["org/dense", "org/dense", "--fit", "1GiB"]).stdout;
    assert!(!equal.contains("context ") && !equal.contains("reason"), "{equal}");
    assert!(equal.ends_with("\n1.1 GB: 2 of 2 fit, 0 do not fit, 0 unknown\n"), "{equal}");
    let long = list(&["--fit", "1GiB", "--context", "32k"]);
    assert!(long.stdout.lines().nth(1).unwrap().contains("no (max 8k)"), "{}", long.stdout);
    assert!(
        long.stdout.ends_with("1.1 GB: 1 of 4 fit, 2 do not fit, 1 unknown\n"),
        "{}",
        long.stdout
    );
    // Other programs get all columns, and the summary is on stderr.
    let columns = ["context", "context_source", "gpus", "fits", "reason"];
    let csv = list(&["--fit", "1GiB", "--context", "32k", "--format", "csv"]);
    let expected = [
        ["32768", "option", "1", "false", "contextTooLong"],
        ["32768", "option", "1", "false", ""],
        ["32768", "option", "1", "", "unknownArchitecture"],
        ["", "", "1", "true", ""],
    ];
    assert_eq!(cells(&csv.stdout, &columns), expected, "{}", csv.stdout);
    assert!(
        csv.stderr.ends_with("1.1 GB: 1 of 4 fit, 2 do not fit, 1 unknown\n"),
        "{}",
        csv.stderr
    );
    assert!(!csv.stderr.contains("failed a check"), "{}", csv.stderr);
    assert!(!list(&["-q", "--fit", "1GiB", "--format", "csv"]).stderr.contains("of 4 fit"));
    let plain = list(&["--format", "csv"]).stdout;
    assert_eq!(cells(&plain, &columns)[0], ["", "", "", "", ""], "{plain}");
    let assumed = list(&["--memory", "--format", "tsv"]).stdout.replace('\t', ",");
    assert_eq!(cells(&assumed, &columns)[1], ["4096", "default", "1", "", ""], "{assumed}");
    let memory = list(&["--memory"]).stdout;
    assert!(memory.lines().nth(3).unwrap().contains(" ? "), "{memory}");
    assert!(!memory.contains("of 4 fit"), "{memory}");
}

#[test]
fn models_are_sorted_by_memory_and_by_context() {
    let hub = hub();
    let names = ["org/dense", "org/latent", "org/sliding"];
    let first = |args: &[&str]| {
        let csv = run(&hub, &[&names[..], args, &["--format", "csv"]].concat()).stdout;
        cells(&csv, &["repository"]).concat()
    };
    assert_eq!(
        first(&["--memory", "--sort", "memory"]),
        ["org/latent", "org/sliding", "org/dense"]
    );
    assert_eq!(
        first(&["--fit", "24GB", "--sort", "context"]),
        ["org/latent", "org/sliding", "org/dense"]
    );
    for args in [&["--sort", "memory"][..], &["--sort", "context"]] {
        let refused = run(&hub, &[&names[..], args].concat());
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains("require `--memory` or `--fit`"), "{}", refused.stderr);
    }
}
