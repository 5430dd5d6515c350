//! `verify` finds what `llama.cpp` does not load, and nothing in files that it wrote.

use hf_meta_count::results::{Finding, Severity};

use super::complete_files;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// A value of a key.
#[derive(Clone)]
enum Value {
    U16(u16),
    U32(u32),
    F32(f32),
    Text(&'static str),
    Texts(usize),
    Numbers(usize),
}

/// A small model, in the parts that a defect may change.
#[derive(Clone)]
struct Model {
    keys: Vec<(String, Value)>,
    /// The name, the shape with the fastest dimension first, and the number of the type.
    tensors: Vec<(String, Vec<u64>, u32)>,
}

const F32: u32 = 0;
const Q4_0: u32 = 2;
const Q8_0: u32 = 8;

impl Model {
    /// Returns a sound model with two blocks, 40 tokens and matrices of a type.
    fn new(architecture: &'static str, dtype: u32, file_type: u32) -> Self {
        let of_model = |key: &str| format!("{architecture}.{key}");
        let list = |name: &str| format!("tokenizer.ggml.{name}");
        let keys = vec![
            ("general.architecture".to_owned(), Value::Text(architecture)),
            ("general.file_type".to_owned(), Value::U32(file_type)),
            (of_model("context_length"), Value::U32(128)),
            (of_model("embedding_length"), Value::U32(256)),
            (of_model("block_count"), Value::U32(2)),
            (of_model("feed_forward_length"), Value::U32(512)),
            (of_model("attention.head_count"), Value::U32(4)),
            (of_model("attention.head_count_kv"), Value::U32(2)),
            (of_model("attention.layer_norm_rms_epsilon"), Value::F32(1e-5)),
            (list("model"), Value::Text("gpt2")),
            (list("tokens"), Value::Texts(40)),
            (list("scores"), Value::Numbers(40)),
            (list("token_type"), Value::Numbers(40)),
            (list("merges"), Value::Texts(7)),
        ];
        let mut tensors = vec![
            ("token_embd.weight".to_owned(), vec![256, 40], dtype),
            ("output_norm.weight".to_owned(), vec![256], F32),
        ];
        for block in 0..2 {
            let name = |part: &str| format!("blk.{block}.{part}.weight");
            let norms = ["attn_norm", "ffn_norm"];
            tensors.extend(norms.map(|part| (name(part), vec![256], F32)));
            let matrices = [
                ("attn_q", [256, 256]),
                ("attn_k", [256, 128]),
                ("attn_v", [256, 128]),
                ("attn_output", [256, 256]),
                ("ffn_gate", [256, 512]),
                ("ffn_up", [256, 512]),
                ("ffn_down", [512, 256]),
            ];
            tensors.extend(matrices.map(|(part, shape)| (name(part), shape.to_vec(), dtype)));
        }
        Self { keys, tensors }
    }

    fn set(&mut self, key: &str, value: Value) {
        self.keys.retain(|(name, _)| name != key);
        self.keys.push((key.to_owned(), value));
    }

    fn without_key(&mut self, key: &str) {
        self.keys.retain(|(name, _)| name != key);
    }

    fn without_tensor(&mut self, name: &str) {
        self.tensors.retain(|(found, ..)| found != name);
    }

    /// Removes all tensors with a part in their names.
    fn without(&mut self, part: &str) {
        self.tensors.retain(|(found, ..)| !found.contains(part));
    }

    fn rename(&mut self, part: &str, new: &str) {
        for (name, ..) in &mut self.tensors {
            *name = name.replace(part, new);
        }
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Vec<u64>, u32) {
        self.tensors.iter_mut().find(|(found, ..)| found == name).unwrap()
    }

    fn file(&self) -> File {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let mut head = b"GGUF\x03\0\0\0".to_vec();
        head.extend(
            [self.tensors.len() as u64, self.keys.len() as u64].map(u64::to_le_bytes).concat(),
        );
        for (key, value) in &self.keys {
            head.extend(text(key));
            let list = |element: u32, length: usize| {
                [&9_u32.to_le_bytes()[..], &element.to_le_bytes(), &(length as u64).to_le_bytes()]
                    .concat()
            };
            head.extend(match value {
                Value::U16(number) => [&2_u32.to_le_bytes()[..], &number.to_le_bytes()].concat(),
                Value::U32(number) => [4, *number].map(u32::to_le_bytes).concat(),
                Value::F32(number) => [6_u32.to_le_bytes(), number.to_le_bytes()].concat(),
                Value::Text(value) => [8_u32.to_le_bytes().to_vec(), text(value)].concat(),
                Value::Texts(length) => [list(8, *length), text("a").repeat(*length)].concat(),
                Value::Numbers(length) => [list(5, *length), vec![0; 4 * length]].concat(),
            });
        }
        let mut offset = 0_u64;
        for (name, shape, dtype) in &self.tensors {
            let elements: u64 = shape.iter().product();
            let bytes = match *dtype {
                Q4_0 => elements / 32 * 18,
                Q8_0 => elements / 32 * 34,
                _ => elements * 4,
            };
            head.extend(text(name));
            head.extend(u32::try_from(shape.len()).unwrap().to_le_bytes());
            head.extend(shape.iter().flat_map(|length| length.to_le_bytes()));
            head.extend(dtype.to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset += bytes.next_multiple_of(32);
        }
        let size = (head.len() as u64).next_multiple_of(32) + offset;
        File::padded(head, size)
    }
}

/// Returns the findings about a repository.
async fn findings(repo: Repo) -> Vec<Finding> {
    let hub = LocalHub::start([repo]).unwrap();
    support::client(&hub).model("org/gguf").verify().await.unwrap().findings()
}

async fn findings_of(name: &str, model: &Model) -> Vec<String> {
    let found = findings(Repo::new("org/gguf").file(name, model.file())).await;
    found.iter().map(ToString::to_string).collect()
}

/// Files that llama.cpp quantized, and files of other programs, about which nothing is known.
#[tokio::test]
async fn sound_files_have_no_findings() {
    let (folder, files) = complete_files();
    let mut checked = 0;
    for (name, figures) in files {
        if name.contains("-of-") || name == "types.gguf" {
            continue;
        }
        let file = File::padded(std::fs::read(folder.join(&name)).unwrap(), figures.size);
        assert_eq!(findings(Repo::new("org/gguf").file(&name, file)).await, [], "{name}");
        checked += 1;
    }
    assert!(checked >= 36, "only {checked} files");
    for architecture in ["llama", "qwen2", "mistral3", "smollm3"] {
        let model = Model::new(architecture, Q8_0, 7);
        assert_eq!(findings_of("x-Q8_0.gguf", &model).await, [""; 0], "{architecture}");
    }
    let mut drafts = Model::new("llama", Q8_0, 7);
    drafts.set("llama.nextn_predict_layers", Value::U32(1));
    drafts.without("blk.0");
    assert_eq!(findings_of("drafts-Q8_0.gguf", &drafts).await, [""; 0]);
    let mut long = Model::new("llama", Q8_0, 7);
    long.set("llama.attention.head_count_kv", Value::Numbers(65));
    assert_eq!(findings_of("long-Q8_0.gguf", &long).await, [""; 0]);
    // The tensors of the first Qwen do not depend on the number of heads.
    let mut qwen = Model::new("qwen", Q8_0, 7);
    qwen.without_key("qwen.attention.head_count");
    qwen.without("attn_k");
    qwen.without("attn_v");
    qwen.rename("attn_q", "attn_qkv");
    qwen.tensors.push(("output.weight".to_owned(), vec![256, 40], Q8_0));
    for block in 0..2 {
        qwen.tensor(&format!("blk.{block}.attn_qkv.weight")).1[1] = 768;
        qwen.tensors.push((format!("blk.{block}.attn_qkv.bias"), vec![768], F32));
        qwen.tensor(&format!("blk.{block}.ffn_down.weight")).1[0] = 256;
        for part in ["ffn_gate", "ffn_up"] {
            qwen.tensor(&format!("blk.{block}.{part}.weight")).1[1] = 256;
        }
    }
    assert_eq!(findings_of("qwen-Q8_0.gguf", &qwen).await, [""; 0]);
    let mut other = Model::new("flux", Q8_0, 7);
    other.keys.truncate(2);
    other.without_tensor("blk.1.attn_q.weight");
    assert_eq!(findings_of("flux-Q8_0.gguf", &other).await, [""; 0]);
    other.keys.clear();
    assert_eq!(findings_of("sd.gguf", &other).await, [""; 0]);
    let names = ["x-UD-Q4_K_XL", "x-Q4_K_L", "x-F16-v2", "x", "x.i1-Q8_0", "x-q8_0"];
    for name in names {
        let model = Model::new("llama", Q8_0, if name.contains("F16") { 1024 } else { 7 });
        let found = findings_of(&format!("{name}.gguf"), &model).await;
        assert_eq!(found.len(), usize::from(name.contains("F16")), "{name}: {found:?}");
    }
}

/// A change to a sound model, and the text of the finding.
type Defect = (fn(&mut Model), &'static str);

const DEFECTS: [Defect; 20] = [
    (
        |model| model.without_key("llama.context_length"),
        "lacks the key `llama.context_length`, without which llama.cpp does not load it",
    ),
    (
        |model| model.without_key("llama.embedding_length"),
        "lacks the key `llama.embedding_length`, without which llama.cpp does not load it",
    ),
    (
        |model| model.without_key("llama.block_count"),
        "lacks the key `llama.block_count`, without which llama.cpp does not load it",
    ),
    (
        |model| model.without_key("llama.attention.layer_norm_rms_epsilon"),
        "lacks the key `llama.attention.layer_norm_rms_epsilon`, without which llama.cpp does not load it",
    ),
    (
        |model| model.without_key("tokenizer.ggml.model"),
        "lacks the key `tokenizer.ggml.model`, without which llama.cpp does not load it",
    ),
    (
        |model| model.without_key("tokenizer.ggml.tokens"),
        "lacks the key `tokenizer.ggml.tokens`, without which llama.cpp does not load it",
    ),
    (
        |model| model.without_key("tokenizer.ggml.merges"),
        "lacks the key `tokenizer.ggml.merges`, without which llama.cpp does not load it",
    ),
    (|model| model.without_tensor("token_embd.weight"), "`token_embd` is missing"),
    (|model| model.without_tensor("output_norm.weight"), "`output_norm` is missing"),
    (|model| model.without_tensor("blk.1.attn_q.weight"), "`blk.1.attn_q` is missing"),
    (|model| model.without("ffn_up"), "`blk.0.ffn_up` (and 1 more) is missing"),
    (|model| model.without("attn_norm"), "`blk.0.attn_norm` (and 1 more) is missing"),
    (
        |model| model.rename("attn_norm", "input_norm"),
        "`blk.0.attn_norm` (and 1 more) is missing, and blk.#.input_norm.weight has its shape: renamed?",
    ),
    (
        |model| model.set("llama.block_count", Value::U32(3)),
        "layer 2 of `blk` is missing (`block_count` is 3)",
    ),
    (|model| model.without("blk.1"), "layer 1 of `blk` is missing (`block_count` is 2)"),
    (
        |model| model.tensor("blk.0.ffn_up.weight").1 = vec![256, 256],
        "the shape of `blk.0.ffn_up.weight` is [256, 256], but `feed_forward_length` implies [512, 256]",
    ),
    (
        |model| model.tensor("token_embd.weight").1 = vec![128, 40],
        "the shape of `token_embd.weight` is [40, 128], but `embedding_length` implies [40, 256]",
    ),
    (
        |model| model.set("tokenizer.ggml.tokens", Value::Texts(41)),
        "the shape of `token_embd.weight` is [40, 256], but `tokenizer.ggml.tokens` implies [41, 256]",
    ),
    (
        |model| model.set("tokenizer.ggml.scores", Value::Numbers(90)),
        "declares 90 values in `tokenizer.ggml.scores`, but `tokenizer.ggml.tokens` has 40",
    ),
    (
        |model| model.set("llama.embedding_length", Value::U32(512)),
        "the shape of `token_embd.weight` is [40, 256], but `embedding_length` implies [40, 512]",
    ),
];

#[tokio::test]
async fn each_defect_is_found() {
    for (plant, text) in DEFECTS {
        let mut model = Model::new("llama", Q8_0, 7);
        plant(&mut model);
        let found = findings_of("x-Q8_0.gguf", &model).await;
        assert!(found.iter().any(|found| found.ends_with(text)), "{text}: {found:?}");
    }
}

#[tokio::test]
async fn a_wrong_quantization_is_a_warning() {
    let cases = [
        ("x-Q8_0.gguf", Q4_0, 7, "Q8_0, but its matrices have 4.50 bits per weight"),
        ("x-Q8_0.gguf", Q8_0, 15, "Q4_K_M, but its name states Q8_0"),
        ("x.gguf", Q8_0, 1, "F16, but its matrices have 8.50 bits per weight"),
        ("x-Q4_0.gguf", F32, 2, "Q4_0, but its matrices have 32.00 bits per weight"),
    ];
    for (name, dtype, file_type, text) in cases {
        let repo = Repo::new("org/gguf").file(name, Model::new("llama", dtype, file_type).file());
        let found = findings(repo).await;
        let [finding @ Finding::FileTypeMismatch { .. }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.to_string(), format!("`{name}` is declared as {text}"));
        assert_eq!(finding.severity(), Severity::Warning);
    }
    let mut unnamed = Model::new("llama", Q4_0, 7);
    unnamed.without_key("general.file_type");
    let found = findings_of("x-Q8_0.gguf", &unnamed).await;
    assert_eq!(
        found,
        ["`x-Q8_0.gguf` is declared as Q8_0, but its matrices have 4.50 bits per weight"]
    );
}

/// Returns a model in two parts.
fn split(numbers: [Option<u16>; 2]) -> Repo {
    let mut parts = [Model::new("llama", Q8_0, 7), Model::new("llama", Q8_0, 7)];
    parts[1].keys.clear();
    let second = parts[0].tensors.split_off(8);
    parts[1].tensors = second;
    let mut repo = Repo::new("org/gguf");
    for (at, (part, number)) in parts.iter_mut().zip(numbers).enumerate() {
        part.keys.extend([("split.count".to_owned(), Value::U16(2))]);
        part.keys.extend(number.map(|number| ("split.no".to_owned(), Value::U16(number))));
        part.keys.push(("split.tensors.count".to_owned(), Value::U32(20)));
        repo = repo.file(&format!("x-Q8_0-0000{}-of-00002.gguf", at + 1), part.file());
    }
    repo
}

#[tokio::test]
async fn parts_must_have_their_number() {
    assert_eq!(findings(split([Some(0), Some(1)])).await, []);
    let texts = |found: &[Finding]| found.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        texts(&findings(split([Some(0), Some(0)])).await),
        [
            "`x-Q8_0-00002-of-00002.gguf` declares 0 in `split.no`, but its name states part 2 (the first part is 0)"
        ]
    );
    assert_eq!(
        texts(&findings(split([Some(0), None])).await),
        [
            "`x-Q8_0-00002-of-00002.gguf` lacks the key `split.no`, without which llama.cpp does not load it"
        ]
    );
}

/// A file with two million names of blocks takes no longer than its tensors.
#[tokio::test]
async fn the_findings_of_a_hostile_file_are_bounded() {
    let mut model = Model::new("llama", F32, 0);
    let tensors = (0..20_000).map(|at| (format!("blk.{at}.t{at}"), vec![0], F32));
    model.tensors.extend(tensors);
    model.set("llama.block_count", Value::U32(20_000));
    let found = findings_of("x.gguf", &model).await;
    assert!(found.len() < 1_100, "{}", found.len());
    model.set("llama.block_count", Value::U32(u32::MAX));
    model.tensors.push((format!("blk.{}.t", u64::MAX), vec![0], F32));
    assert!(findings_of("x.gguf", &model).await.len() < 10);
}
