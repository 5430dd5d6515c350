//! `diff` finds every difference, and nothing else.

use hf_meta_count::results::diff::{ChangeKind, Diff};
use serde_json::{Value, json};

use crate::command::run;
use crate::count::quantization::tensors;
use crate::hub::{File, LocalHub, Repo};
use crate::support;
use crate::support::checkpoint::Checkpoint;

const BLOOM: &str = "bigscience/bloom";
const SHARD: &str = "model_00007-of-00072.safetensors";
const OTHER: &str = "model_00006-of-00072.safetensors";
const TENSOR: &str = "h.5.input_layernorm.weight";

/// A change of one tensor: a function that makes it, the name of the tensor, and the expected kinds.
type Difference = (fn(&mut Checkpoint), &'static str, &'static [ChangeKind]);

const DIFFERENCES: &[Difference] = &[
    (
        |checkpoint| {
            checkpoint.add(SHARD, "extra");
            *checkpoint.indexed_shard("extra") = json!(SHARD);
        },
        "extra",
        &[ChangeKind::Added],
    ),
    (remove, TENSOR, &[ChangeKind::Removed]),
    (
        |checkpoint| checkpoint.entry(SHARD, TENSOR)["shape"] = json!([2, 7168]),
        TENSOR,
        &[ChangeKind::Reshaped],
    ),
    (
        |checkpoint| checkpoint.entry(SHARD, TENSOR)["dtype"] = json!("F16"),
        TENSOR,
        &[ChangeKind::Retyped],
    ),
    (
        |checkpoint| {
            let entry = checkpoint.entry(SHARD, TENSOR);
            entry["dtype"] = json!("F32");
            entry["shape"] = json!([7168]);
        },
        TENSOR,
        &[ChangeKind::Reshaped, ChangeKind::Retyped],
    ),
    (
        |checkpoint| {
            checkpoint.cut_out(SHARD, TENSOR);
            checkpoint.append(OTHER, TENSOR, "BF16", 14_336, 28_672);
            *checkpoint.indexed_shard(TENSOR) = json!(OTHER);
        },
        TENSOR,
        &[ChangeKind::Moved],
    ),
    (
        |checkpoint| {
            checkpoint.cut_out(SHARD, TENSOR);
            checkpoint.append(OTHER, TENSOR, "F16", 14_336, 28_672);
            *checkpoint.indexed_shard(TENSOR) = json!(OTHER);
        },
        TENSOR,
        &[ChangeKind::Retyped, ChangeKind::Moved],
    ),
];

fn remove(checkpoint: &mut Checkpoint) {
    checkpoint.cut_out(SHARD, TENSOR);
    checkpoint.unlist(TENSOR);
}

async fn diff(hub: &LocalHub, before: &str, after: &str) -> Diff {
    let (before, after) = (support::parse(hub, before).await, support::parse(hub, after).await);
    Diff::new(&before.unwrap().into(), &after.unwrap().into(), false)
}

#[tokio::test]
async fn each_kind_of_difference_is_found() {
    for (change_it, tensor, kinds) in DIFFERENCES {
        let mut checkpoint = Checkpoint::from_fixture(BLOOM);
        change_it(&mut checkpoint);
        let before = Checkpoint::from_fixture(BLOOM).repo("org/before");
        let hub = LocalHub::start([before, checkpoint.repo("org/after")]).unwrap();
        let diff = diff(&hub, "org/before", "org/after").await;
        let [change] = &diff.changes[..] else { panic!("{kinds:?}: {:?}", diff.changes) };
        assert_eq!((change.tensor.as_str(), &change.kinds[..]), (*tensor, *kinds));
        assert!(kinds.iter().all(|kind| diff.count(*kind) == 1));
        let was_there = change.before.is_some();
        assert_eq!(diff.unchanged, 845 - u64::from(was_there), "{kinds:?}");
        assert_eq!(was_there, !kinds.contains(&ChangeKind::Added));
        assert_eq!(change.after.is_some(), !kinds.contains(&ChangeKind::Removed));
    }
}

/// Tensors in single files of different names are not moved.
#[tokio::test]
async fn single_files_of_different_names_are_equal() {
    let weights = || support::weights(&["x", "y"]);
    let repo =
        Repo::new("org/two").file("a.safetensors", weights()).file("b.safetensors", weights());
    let hub = LocalHub::start([repo, support::sharded("org/sharded")]).unwrap();
    let file = async |path: &str| {
        let model = support::client(&hub).model("org/two").path(path);
        model.inspect().await.unwrap()
    };
    let (a, b) = (file("a.safetensors").await, file("b.safetensors").await);
    assert!(Diff::new(&a, &b, false).is_empty());
    let sharded = support::client(&hub).model("org/sharded").inspect().await.unwrap();
    let moved = Diff::new(&a, &sharded, false).changes;
    let moved: Vec<_> = moved.iter().map(|change| (&*change.tensor, &change.kinds[..])).collect();
    assert_eq!(moved, [("y", &[ChangeKind::Moved][..])]);
}

/// Two checkpoints with every kind of difference.
fn before_and_after() -> LocalHub {
    let mut after = Checkpoint::from_fixture(BLOOM);
    for layer in 0..70 {
        let shard = format!("model_{:05}-of-00072.safetensors", layer + 2);
        let name = |part: &str| format!("h.{layer}.{part}");
        after.entry(&shard, &name("input_layernorm.weight"))["dtype"] = json!("F16");
        after.cut_out(&shard, &name("self_attention.dense.bias"));
        after.unlist(&name("self_attention.dense.bias"));
        after.add(&shard, &name("gate\u{1b}[2J"));
        *after.indexed_shard(&name("gate\u{1b}[2J")) = json!(shard);
    }
    after.entry("model_00001-of-00072.safetensors", "word_embeddings.weight")["shape"] =
        json!([125_440, 28_672]);
    after.cut_out(SHARD, TENSOR);
    after.append(OTHER, TENSOR, "BF16", 14_336, 28_672);
    *after.indexed_shard(TENSOR) = json!(OTHER);
    after.index["metadata"] = json!({});
    LocalHub::start([Checkpoint::from_fixture(BLOOM).repo("org/before"), after.repo("org/after")])
        .unwrap()
}

#[test]
fn the_command_prints_a_table() {
    let hub = before_and_after();
    let ran = run(&hub, &["diff", "org/before", "org/after"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    insta::assert_snapshot!(ran.stdout);
    let same = run(&hub, &["diff", "org/before", "org/before@main"]).data();
    assert!(same.ends_with("no differences in 845 tensors; values are not compared\n"), "{same}");
}

#[test]
fn the_command_prints_json() {
    let ran = run(&before_and_after(), &["diff", "org/before", "org/after", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    let mut json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let changes = json["changes"].as_array_mut().unwrap();
    let kinds: std::collections::HashSet<_> =
        changes.iter().map(|change| change["kinds"].to_string()).collect();
    assert_eq!((changes.len(), kinds.len()), (70 + 70 + 70 + 1, 5));
    changes.retain({
        let mut seen = std::collections::HashSet::new();
        move |change| seen.insert(change["kinds"].to_string())
    });
    insta::assert_json_snapshot!(json);
}

/// A doubtful count makes the comparison of counts doubtful, too.
#[test]
fn findings_of_either_side_are_warnings() {
    let mut odd = Checkpoint::from_fixture(BLOOM);
    odd.index["metadata"]["total_size"] = 1.into();
    let hub =
        LocalHub::start([Checkpoint::from_fixture(BLOOM).repo("org/good"), odd.repo("org/odd")])
            .unwrap();
    let ran = run(&hub, &["diff", "org/good", "org/odd"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let said = "warning: org/odd: the index declares 1 bytes in total, but the tensors take up 352,494,542,848\n";
    assert_eq!(ran.stderr, said);
}

#[test]
fn an_unreadable_side_is_an_error() {
    let hub = LocalHub::start([support::sharded("org/good"), Repo::new("org/empty")]).unwrap();
    let cases: [(&[&str], i32); 5] = [
        (&["org/good", "org/empty"], 2),
        (&["org/empty", "org/none"], 3),
        (&["org/good", "a/b/c"], 2),
        (&["org/good"], 2),
        (&["org/good", "org/good", "org/good"], 2),
    ];
    for (args, code) in cases {
        let ran = run(&hub, &[&["diff"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}");
        assert!(ran.stderr.contains("error: "), "{args:?}: {}", ran.stderr);
    }
}

/// A tensor by name, dtype, shape and bytes per element.
type Tensor = (String, &'static str, Vec<u64>, u64);

/// Returns two layers with two linear modules each, a norm, and embeddings under a prefix. `packed` returns the parts of
/// a module.
fn layers(prefix: &str, packed: impl Fn(&str) -> Vec<Tensor>) -> File {
    let plain =
        |name: &str, shape: &[u64]| (format!("{prefix}{name}.weight"), "BF16", shape.to_vec(), 2);
    let mut all = vec![plain("embed_tokens", &[320, 128]), plain("lm_head", &[320, 128])];
    for layer in 0..2 {
        all.push(plain(&format!("layers.{layer}.norm"), &[128]));
        let modules = ["q_proj", "o_proj"];
        all.extend(
            modules.iter().flat_map(|name| packed(&format!("{prefix}layers.{layer}.{name}"))),
        );
    }
    let all: Vec<_> =
        all.iter().map(|(name, dtype, shape, width)| (&**name, *dtype, &**shape, *width)).collect();
    tensors(&all)
}

fn linear(module: &str) -> Vec<Tensor> {
    vec![(format!("{module}.weight"), "BF16", vec![128, 128], 2)]
}

/// Returns a hub with the original `org/before`, and `org/after`.
fn hub_with(before: File, after: File) -> LocalHub {
    let repo = |name: &str, file| Repo::new(name).file("model.safetensors", file);
    LocalHub::start([repo("org/before", before), repo("org/after", after)]).unwrap()
}

fn part(name: String, dtype: &'static str, shape: &[u64], width: u64) -> Tensor {
    (name, dtype, shape.to_vec(), width)
}

#[tokio::test]
async fn quantized_modules_are_matched_with_their_original() {
    let gptq = |module: &str| {
        vec![
            part(format!("{module}.qweight"), "I32", &[16, 128], 4),
            part(format!("{module}.qzeros"), "I32", &[1, 16], 4),
            part(format!("{module}.scales"), "F16", &[1, 128], 2),
            part(format!("{module}.g_idx"), "I32", &[128], 4),
        ]
    };
    let nf4 = |module: &str| {
        vec![
            part(format!("{module}.weight"), "U8", &[8_192, 1], 1),
            part(format!("{module}.weight.absmax"), "F32", &[256], 4),
            part(format!("{module}.weight.quant_map"), "F32", &[16], 4),
            part(format!("{module}.weight.quant_state.bitsandbytes__nf4"), "U8", &[80], 1),
        ]
    };
    let fp8 = |module: &str| {
        vec![
            part(format!("{module}.weight"), "F8_E4M3", &[128, 128], 1),
            part(format!("{module}.weight_scale_inv"), "F32", &[1, 1], 4),
        ]
    };
    let compressed = |module: &str| {
        vec![
            part(format!("{module}.weight_packed"), "I32", &[128, 16], 4),
            part(format!("{module}.weight_scale"), "BF16", &[128, 1], 2),
            part(format!("{module}.weight_shape"), "I64", &[2], 8),
        ]
    };
    let methods: [fn(&str) -> Vec<Tensor>; 4] = [gptq, nf4, fp8, compressed];
    for (at, packed) in methods.into_iter().enumerate() {
        let hub = hub_with(layers("", linear), layers("", packed));
        for sides in [["org/before", "org/after"], ["org/after", "org/before"]] {
            let diff = diff(&hub, sides[0], sides[1]).await;
            let Some(quantized) = diff.quantized else { panic!("{at}: {:?}", diff.changes) };
            assert_eq!((quantized.quantized, quantized.modules), (4, 6), "{at}");
            assert_eq!(quantized.plain, ["embed_tokens", "lm_head"], "{at}");
            assert_eq!((&diff.changes[..], diff.unchanged), (&[][..], 4), "{at}");
        }
    }
    let hub = hub_with(
        layers("", linear),
        layers("", |module| match module {
            "layers.1.o_proj" => linear(module),
            module => gptq(module),
        }),
    );
    let ran = run(&hub, &["diff", "org/before", "org/after"]);
    let line = "quantized: 3 of 6 linear modules; plain: embed_tokens, layers.1.o_proj, lm_head\n";
    assert!(ran.code == 1 && ran.stdout.contains(line), "{}", ran.stdout);
    let json = run(&hub, &["diff", "org/before", "org/after", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["quantized"]["quantized"], 3);
    assert_eq!((&json["equal"], &json["changes"]), (&json!(false), &json!([])));
}

#[tokio::test]
async fn a_renamed_prefix_is_one_difference() {
    let pairs = [("model.language_model.", "language_model.model."), ("", "model."), ("a.b.", "")];
    for (old, new) in pairs {
        let hub = hub_with(layers(old, linear), layers(new, linear));
        let diff = diff(&hub, "org/before", "org/after").await;
        let renamed = diff.renamed.as_ref().unwrap();
        let found = (&*renamed.before, &*renamed.after, renamed.tensors);
        assert_eq!((found, &diff.changes[..]), ((old, new, 8), &[][..]));
        assert!(!diff.is_empty() && diff.unchanged == 8);
    }
    // The rest is compared under the new names.
    let wider = |module: &str| vec![(format!("{module}.weight"), "F16", vec![128, 128], 2)];
    let hub =
        hub_with(layers("model.language_model.", linear), layers("language_model.model.", wider));
    let ran = run(&hub, &["diff", "org/before", "org/after"]);
    let line = "renamed: 8 tensors, `model.language_model.` → `language_model.model.`\n";
    assert!(ran.stdout.contains(line), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("\nretyped: 4 tensors\n~  language_model.model.layers.[0-1]."),
        "{}",
        ran.stdout
    );
    // Unrelated names have no common rest.
    let file =
        |names: [&'static str; 3]| tensors(&names.map(|name| (name, "BF16", &[8, 8][..], 2)));
    let hub =
        hub_with(file(["a.x.weight", "a.y.weight", "b"]), file(["c.z.weight", "d.v.weight", "e"]));
    assert_eq!(diff(&hub, "org/before", "org/after").await.renamed, None);
}

#[test]
fn shards_can_be_ignored() {
    let mut after = Checkpoint::from_fixture(BLOOM);
    after.cut_out(SHARD, TENSOR);
    after.append(OTHER, TENSOR, "BF16", 14_336, 28_672);
    *after.indexed_shard(TENSOR) = json!(OTHER);
    let repos = [Checkpoint::from_fixture(BLOOM).repo("org/before"), after.repo("org/after")];
    let hub = LocalHub::start(repos).unwrap();
    let diff = ["diff", "org/before", "org/after"];
    assert_eq!(run(&hub, &diff).code, 1);
    let ran = run(&hub, &[&diff[..], &["--ignore-shards"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(
        ran.stdout.ends_with("no differences in 845 tensors; values are not compared\n"),
        "{}",
        ran.stdout
    );
}
