//! Tests of the parser with generated headers.

use std::ops::Range;

use super::Gguf;
use super::parser::describe;
use crate::formats::{
    DetectedFormat, Dtype, FileHeader, Format, HeaderError, HeaderErrorKind, Step, WeightFileName,
    WeightsKind,
};

/// Builds a header.
#[derive(Clone, Debug)]
struct Writer {
    is_big_endian: bool,
    version: u32,
    tensors: u64,
    keys: u64,
    bytes: Vec<u8>,
    entries: Vec<u8>,
}

impl Writer {
    fn new() -> Self {
        Self {
            is_big_endian: false,
            version: 3,
            tensors: 0,
            keys: 0,
            bytes: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn number(&self, number: u64, size: usize) -> Vec<u8> {
        let mut bytes = number.to_le_bytes()[..size].to_vec();
        if self.is_big_endian {
            bytes.reverse();
        }
        bytes
    }

    fn text(&self, text: &[u8]) -> Vec<u8> {
        [&self.number(text.len() as u64, 8), text].concat()
    }

    /// Adds a key with the type number and the bytes of its value.
    fn key(mut self, key: &str, value_type: u64, value: &[u8]) -> Self {
        let head = [self.text(key.as_bytes()), self.number(value_type, 4)].concat();
        self.bytes.extend([&head, value].concat());
        self.keys += 1;
        self
    }

    fn text_key(self, key: &str, text: &str) -> Self {
        let value = self.text(text.as_bytes());
        self.key(key, 8, &value)
    }

    fn u32_key(self, key: &str, number: u32) -> Self {
        let value = self.number(number.into(), 4);
        self.key(key, 4, &value)
    }

    fn list(self, key: &str, element_type: u64, length: u64, elements: &[u8]) -> Self {
        let value = [&self.number(element_type, 4), &self.number(length, 8), elements].concat();
        self.key(key, 9, &value)
    }

    fn texts(self, key: &str, texts: &[&str]) -> Self {
        let elements = texts.iter().flat_map(|text| self.text(text.as_bytes())).collect::<Vec<_>>();
        self.list(key, 8, texts.len() as u64, &elements)
    }

    /// Adds a tensor with its dimensions in file order.
    fn tensor(mut self, name: &str, dimensions: &[u64], tensor_type: u64, offset: u64) -> Self {
        let mut entry =
            [self.text(name.as_bytes()), self.number(dimensions.len() as u64, 4)].concat();
        entry.extend(dimensions.iter().flat_map(|length| self.number(*length, 8)));
        entry.extend(self.number(tensor_type, 4));
        entry.extend(self.number(offset, 8));
        self.entries.extend(entry);
        self.tensors += 1;
        self
    }

    fn write(&self) -> Vec<u8> {
        let numbers = [self.number(self.version.into(), 4), self.number(self.tensors, 8)].concat();
        [b"GGUF", &numbers[..], &self.number(self.keys, 8), &self.bytes, &self.entries].concat()
    }

    /// Writes the header, its padding and `data` bytes of data.
    fn file(&self, alignment: usize, data: usize) -> Vec<u8> {
        let mut file = self.write();
        file.resize(file.len().next_multiple_of(alignment) + data, 0);
        file
    }
}

const LIMIT: u64 = 100_000_000;

/// Reads a header in chunks of at most `most` bytes. Returns the requested ranges and the result.
fn read(
    file: &[u8],
    size: Option<u64>,
    most: usize,
) -> (Vec<Range<u64>>, Result<FileHeader, HeaderError>) {
    let mut parser = Gguf.parser(&"model.gguf".parse().unwrap(), LIMIT);
    let (mut range, mut ranges) = (parser.first_range(), Vec::new());
    loop {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let (start, end) = (at(range.start), at(range.end));
        let bytes = file[start..end.min(start.saturating_add(most))].to_vec();
        ranges.push(range.clone());
        match parser.advance(range.start, bytes, size) {
            Ok(Step::Read(next)) => {
                assert!(next.start < next.end, "{next:?}");
                range = next;
            }
            Ok(Step::Done(header)) => return (ranges, Ok(header)),
            Err(error) => return (ranges, Err(error)),
        }
    }
}

fn parse(file: &[u8]) -> Result<FileHeader, HeaderError> {
    read(file, Some(file.len() as u64), usize::MAX).1
}

fn error(file: &[u8]) -> HeaderError {
    parse(file).unwrap_err()
}

/// A header with one value of each type.
fn example() -> Writer {
    let template = "x".repeat(2_000);
    let tokens: Vec<_> = (0..300).map(|token| format!("token {token}")).collect();
    let tokens: Vec<_> = tokens.iter().map(String::as_str).collect();
    let types: Vec<_> = (0..300).flat_map(|_| Writer::new().number(1, 4)).collect();
    Writer::new()
        .text_key("general.architecture", "llama")
        .u32_key("general.file_type", 15)
        .u32_key("llama.context_length", 4_096)
        .u32_key("llama.expert_count", 8)
        .u32_key("llama.expert_used_count", 2)
        .text_key("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", &tokens)
        .list("tokenizer.ggml.token_type", 5, 300, &types)
        .texts("general.languages", &["de", "en"])
        .list("numbers", 4, 2, &[1, 0, 0, 0, 2, 0, 0, 0])
        .list("nothing", 6, 0, &[])
        .text_key("tokenizer.chat_template", &template)
        .key("flag", 7, &[1])
        .key("negative", 11, &(-5_i64).to_le_bytes())
        .key("float", 6, &1.5_f32.to_le_bytes())
        .tensor("token_embd.weight", &[64, 3], 0, 0)
        .tensor("blk.0.ffn_down.weight", &[256, 2], 12, 768)
        .tensor("blk.0.ffn_norm.weight", &[5], 1, 1_056)
        .tensor("scalar", &[], 24, 1_088)
}

#[test]
fn keys_and_tensors_are_read() {
    let header = parse(&example().file(32, 1_089)).unwrap();
    let metadata = header.metadata().unwrap();
    let expected = [
        ("tokenizer.ggml.tokens", "(300 texts)"),
        ("tokenizer.ggml.token_type", "(300 numbers)"),
        ("general.languages", "[de, en]"),
        ("numbers", "[1, 2]"),
        ("nothing", "[]"),
        ("tokenizer.chat_template", "(2000 bytes)"),
        ("flag", "true"),
        ("negative", "-5"),
        ("float", "1.5"),
        ("llama.context_length", "4096"),
    ];
    for (key, value) in expected {
        assert_eq!(metadata[key], value, "{key}");
    }
    let model = header.model.as_deref().unwrap();
    assert_eq!(model.architecture.as_deref(), Some("llama"));
    assert_eq!(model.file_type.as_deref(), Some("Q4_K_M"));
    assert_eq!((model.experts, model.experts_per_token), (Some(8), Some(2)));
    assert_eq!((model.context_length, model.vocabulary), (Some(4_096), Some(300)));
    assert!(header.is_self_describing, "shapes are those of the weights");
    let tensors: Vec<_> = header.tensors().iter().collect();
    assert_eq!(tensors[1].0, "blk.0.ffn_down.weight");
    assert_eq!((&tensors[1].1.dtype, &tensors[1].1.shape[..]), (&Dtype::Q4_K, &[2, 256][..]));
    assert_eq!(tensors[1].1.data_offsets, (768, 1_056));
    assert_eq!(tensors[2].1.data_offsets, (1_056, 1_066));
    assert!(tensors[3].1.is_scalar());
    assert_eq!((header.data_length(), header.header_range().end % 32), (1_089, 0));
}

#[test]
fn all_versions_and_byte_orders_give_the_same_header() {
    let of = |version, is_big_endian| {
        let writer = Writer { is_big_endian, version, ..Writer::new() };
        let writer = writer.text_key("a", "b").u32_key("general.alignment", 64);
        let writer = writer.tensor("x", &[32], 2, 0).tensor("y", &[7], 0, 64);
        parse(&writer.file(64, 64 + 28)).unwrap()
    };
    let header = of(3, false);
    assert_eq!(header.tensors().get("y").unwrap().data_offsets, (64, 92));
    for (version, is_big_endian) in [(2, false), (2, true), (3, true)] {
        let mut found = of(version, is_big_endian);
        assert_eq!(std::mem::take(&mut found.is_big_endian), is_big_endian);
        assert_eq!(found, header);
    }
}

#[test]
fn chunks_of_any_length_give_the_same_header() {
    let file = example().file(32, 1_089);
    let header = parse(&file).unwrap();
    for size in [None, Some(file.len() as u64)] {
        for most in (1..70).chain([500, 1_000, 2_500]) {
            let (_, pieces) = read(&file, size, most);
            let pieces = pieces.unwrap().with_file_size(file.len() as u64);
            assert_eq!(pieces, header, "{most} at a time");
        }
    }
}

#[test]
fn truncated_headers_are_rejected() {
    let file = example().file(32, 1_089);
    let end = example().write().len();
    for cut in 0..file.len() {
        for size in [None, Some(cut as u64)] {
            let result = read(&file[..cut], size, usize::MAX).1;
            let Err(error) = result else {
                assert!(cut >= end && size.is_none(), "cut at {cut}");
                continue;
            };
            let expected = match error.kind {
                HeaderErrorKind::FileSizeMismatch if cut >= end => format!("it has {cut} bytes"),
                HeaderErrorKind::Truncated => format!("only {cut} bytes are available"),
                HeaderErrorKind::ExceedsFile => format!("in a file of {cut} bytes"),
                _ => panic!("cut at {cut}: {error}"),
            };
            assert!(error.message.ends_with(&expected), "cut at {cut}: {error}");
        }
    }
}

#[test]
fn bytes_after_the_data_are_ignored() {
    let header = parse(&example().file(32, 5_000)).unwrap();
    assert_eq!(header.data_length(), 1_089);
    assert_eq!(header.file_size(), header.header_range().end + 5_000);
}

#[test]
fn unknown_types_are_stored_as_numbers() {
    let writer = Writer::new().tensor("a", &[64], 31, 0).tensor("b", &[8], 0, 64);
    let writer = writer.tensor("c", &[32], 99, 96);
    let header = parse(&writer.file(32, 96 + 20)).unwrap();
    let tensor = |name| header.tensors().get(name).unwrap();
    assert_eq!((tensor("a").dtype.as_str(), tensor("a").data_offsets), ("GGML type 31", (0, 64)));
    assert_eq!((tensor("c").dtype.as_str(), tensor("c").data_offsets), ("GGML type 99", (96, 116)));
    let tiny = Writer::new().tensor("a", &[1 << 20], 31, 0).tensor("b", &[8], 0, 64);
    assert_eq!(error(&tiny.file(32, 96)).kind, HeaderErrorKind::TooManyElements);
    let unaligned = Writer::new().tensor("a", &[64], 31, 0).tensor("b", &[8], 0, 65);
    assert_eq!(error(&unaligned.file(32, 200)).kind, HeaderErrorKind::Overlap);
}

#[test]
fn invalid_keys_are_errors() {
    let long = "k".repeat(65_536);
    let cases = [
        (Writer::new().u32_key("", 1), "the name of key 0 has 0 bytes; it must have 1 to 65535"),
        (
            Writer::new().u32_key(&long, 1),
            "the name of key 0 has 65536 bytes; it must have 1 to 65535",
        ),
        (Writer::new().u32_key("a", 1).u32_key("a", 1), "key `a` appears twice"),
        (Writer::new().key("a", 13, &[0; 16]), "key `a` has a value of unknown type 13"),
        (Writer::new().list("a", 13, 1, &[0; 16]), "key `a` has a value of unknown type 13"),
        (Writer::new().list("a", 9, 1, &[0; 16]), "key `a` has an array of arrays"),
        (
            Writer::new().u32_key("general.alignment", 24),
            "`general.alignment` is `24`; it must be a 32-bit power of two",
        ),
        (
            Writer::new().u32_key("general.alignment", 0),
            "`general.alignment` is `0`; it must be a 32-bit power of two",
        ),
        (
            Writer::new().text_key("general.alignment", "32"),
            "`general.alignment` is `32`; it must be a 32-bit power of two",
        ),
        (
            Writer { keys: 10_001, ..Writer::new() },
            "the header has 10001 keys, which exceeds the limit of 10000",
        ),
        (
            Writer { version: 1, ..Writer::new() },
            "unsupported GGUF version 1; only 2 and 3 are supported",
        ),
        (
            Writer { version: 4, ..Writer::new() },
            "unsupported GGUF version 4; only 2 and 3 are supported",
        ),
    ];
    for (writer, message) in cases {
        assert_eq!(error(&writer.file(32, 200_000)).to_string(), message);
    }
    let contents = [
        ("general.type", "imatrix", "the file contains an importance matrix, not a model"),
        (
            "general.architecture",
            "controlvector",
            "the file contains a control vector, not a model",
        ),
    ];
    for (key, value, message) in contents {
        let writer = Writer::new().text_key(key, value).tensor("x", &[8], 0, 0);
        assert_eq!(error(&writer.file(32, 32)).to_string(), message);
    }
    for statistics in ["blk.0.attn_q.weight.in_sum2", "blk.0.attn_q.weight.counts"] {
        let writer = Writer::new().tensor(statistics, &[8], 0, 0);
        assert_eq!(error(&writer.file(32, 32)).to_string(), contents[0].2);
    }
    let mut file = Writer::new().u32_key("ab", 1).file(32, 0);
    file[32] = 0xff;
    assert_eq!(error(&file).to_string(), "the name of key 0 is not valid UTF-8");
}

#[test]
fn invalid_tensors_are_errors() {
    let of = |name: &str, dimensions: &[u64], tensor_type, offset| {
        Writer::new().tensor(name, dimensions, tensor_type, offset)
    };
    let long = "t".repeat(64);
    let cases = [
        (of(&long, &[1], 0, 0), "the name of tensor 0 has 64 bytes; it must have 1 to 63"),
        (of("", &[1], 0, 0), "the name of tensor 0 has 0 bytes; it must have 1 to 63"),
        (of("x", &[1; 5], 0, 0), "tensor `x` has 5 dimensions; the maximum is 4"),
        (
            of("x", &[48], 2, 0),
            "tensor `x` has rows of 48 elements, which is not a multiple of the block size 32",
        ),
        (
            of("x", &[], 2, 0),
            "tensor `x` has rows of 1 elements, which is not a multiple of the block size 32",
        ),
        (of("x", &[1 << 63], 24, 0), "the size of tensor `x` overflows 64 bits"),
        (of("x", &[1 << 62, 4], 24, 0), "the size of tensor `x` overflows 64 bits"),
        (of("x", &[1 << 62], 28, 0), "the size of tensor `x` overflows 64 bits"),
        (of("x", &[8], 0, 32), "the data has a gap from byte 0 to byte 32, before tensor `x`"),
        (
            of("x", &[8], 0, 0).tensor("y", &[8], 0, 64),
            "the data has a gap from byte 32 to byte 64, before tensor `y`",
        ),
        (
            of("x", &[9], 0, 0).tensor("y", &[8], 0, 32),
            "tensor `y` begins at byte 32 of the data, inside a tensor that ends at byte 64",
        ),
        // Data in a different order than the entries.
        (
            of("x", &[8], 0, 32).tensor("y", &[8], 0, 0),
            "the data has a gap from byte 0 to byte 32, before tensor `x`",
        ),
        // An empty tensor overlaps nothing.
        (
            of("x", &[8], 0, 0).tensor("y", &[0], 0, 0),
            "tensor `y` begins at byte 0 of the data, inside a tensor that ends at byte 32",
        ),
        // Inside the alignment padding.
        (
            of("x", &[9], 0, 0).tensor("y", &[8], 0, 40),
            "tensor `y` begins at byte 40 of the data, inside a tensor that ends at byte 64",
        ),
        (of("x", &[8], 0, 0).tensor("x", &[8], 0, 32), "tensor `x` appears twice in the header"),
    ];
    for (writer, message) in cases {
        assert_eq!(error(&writer.file(32, 1_000)).to_string(), message);
    }
    let beyond = of("x", &[8], 0, 0).file(32, 31);
    let size = beyond.len() as u64;
    let message = format!(
        "according to its header, the file ends with tensor `x` at byte {}, but it has {size} bytes",
        size + 1
    );
    let (kind, tensor) = (HeaderErrorKind::FileSizeMismatch, Some("x".to_owned()));
    assert_eq!(error(&beyond), HeaderError { kind, tensor, message });
}

#[test]
fn the_longest_names_are_accepted() {
    let (key, tensor) = ("k".repeat(65_535), "t".repeat(63));
    let writer = Writer::new().u32_key(&key, 1).tensor(&tensor, &[8], 0, 0);
    let header = parse(&writer.file(32, 32)).unwrap();
    assert_eq!(header.metadata().unwrap()[&key], "1");
    assert_eq!(header.tensors().names().collect::<Vec<_>>(), [&tensor]);
}

#[test]
fn impossible_counts_are_rejected_immediately() {
    let claims = [
        Writer { tensors: 1 << 63, ..Writer::new() },
        Writer { keys: 1 << 63, ..Writer::new() },
        Writer { tensors: u64::MAX, keys: u64::MAX, ..Writer::new() },
        Writer::new().list("a", 4, 1 << 63, &[]),
        Writer::new().list("a", 8, u64::MAX, &[]),
        Writer::new().key("a", 8, &u64::MAX.to_le_bytes()),
    ];
    for writer in claims {
        let file = writer.write();
        let over = |error: HeaderError| {
            matches!(error.kind, HeaderErrorKind::TooLarge | HeaderErrorKind::OverLimit)
                && error.message.ends_with(&format!("exceeds the limit of {LIMIT} bytes"))
        };
        assert!(over(read(&file, None, usize::MAX).1.unwrap_err()), "{writer:?}");
        assert!(over(read(&file, Some(u64::MAX), usize::MAX).1.unwrap_err()), "{writer:?}");
    }
    let file = Writer::new().list("a", 4, 1_000, &[]).write();
    let size = file.len() as u64;
    assert_eq!(error(&file), HeaderError::exceeds_file(size + 4_000, size));
}

#[test]
fn other_formats_are_recognized() {
    let unknown = |bytes| {
        let message = format!("the file starts with the bytes {bytes} instead of `GGUF`");
        HeaderError::new(HeaderErrorKind::Other, message)
    };
    let wrong = HeaderError::wrong_format;
    let cases: [(&[u8], _); 4] = [
        // The first eight bytes decide, even if more bytes would reveal another format.
        (b"   versi", unknown("[20, 20, 20, 76]")),
        (b"version https://git-lfs.github.com/spec/v1", wrong(DetectedFormat::GitLfsPointer)),
        (b"<!doctype html>", wrong(DetectedFormat::Html)),
        (b"nothing known", unknown("[6e, 6f, 74, 68]")),
    ];
    for (file, expected) in cases {
        for most in [1, 4, 100] {
            assert_eq!(read(file, None, most).1, Err(expected.clone()), "{file:?}");
        }
    }
    assert_eq!(error(b""), HeaderError::exceeds_file(4, 0));
}

/// Writes a header with a vocabulary of `tokens` tokens, by byte pair encoding or with scores, before 400 tensors.
fn with_vocabulary(tokens: usize, tokenizer: &str) -> Vec<u8> {
    let texts: Vec<_> = (0..tokens).map(|token| format!("tok{token:x}")).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let four = vec![0; 4 * tokens];
    let length = tokens as u64;
    let writer = Writer::new().text_key("general.architecture", "llama");
    let writer = writer.text_key("tokenizer.ggml.model", tokenizer);
    let writer = writer.texts("tokenizer.ggml.tokens", &texts);
    let writer = if tokenizer == "gpt2" {
        let merges: Vec<_> = texts.iter().map(|text| format!("{text} x")).collect();
        let merges: Vec<_> = merges.iter().map(String::as_str).collect();
        let writer = writer.list("tokenizer.ggml.token_type", 5, length, &four);
        writer.texts("tokenizer.ggml.merges", &merges)
    } else {
        let writer = writer.list("tokenizer.ggml.scores", 6, length, &four);
        writer.list("tokenizer.ggml.token_type", 5, length, &four)
    };
    let writer = writer.text_key("tokenizer.chat_template", &"t".repeat(10_000));
    let tensors = (0..400).fold(writer, |writer, at| {
        writer.tensor(&format!("blk.{at}.attn_output.weight"), &[32, 4], 0, at * 512)
    });
    tensors.file(32, 400 * 512)
}

#[test]
fn a_header_needs_one_range_and_a_large_one_at_most_three() {
    for (tokens, tokenizer, most) in [
        (100, "gpt2", 1),
        (10_000, "gpt2", 1),
        (32_000, "llama", 2),
        (32_000, "gpt2", 2),
        (128_000, "llama", 2),
        (200_000, "gpt2", 2),
    ] {
        let file = with_vocabulary(tokens, tokenizer);
        let (ranges, header) = read(&file, Some(file.len() as u64), usize::MAX);
        assert_eq!(header.unwrap().model.unwrap().vocabulary, Some(tokens as u64));
        assert!(ranges.len() <= most, "{tokens} {tokenizer}: {ranges:?} of {}", file.len());
        assert_eq!(ranges[0], 0..1 << 20);
    }
}

#[test]
fn later_files_of_a_split_model_take_a_shorter_range() {
    let first = |path: &str| Gguf.parser(&path.parse().unwrap(), LIMIT).first_range().end;
    assert_eq!(first("a-00001-of-00003.gguf"), 1 << 20);
    assert_eq!(first("a-00002-of-00003.gguf"), 64 << 10);
    assert_eq!(first("Q4_0/a.gguf"), 1 << 20);
}

/// Padding belongs to the data.
#[test]
fn a_header_without_data_ends_without_padding() {
    let header = Writer::new().u32_key("general.file_type", 1);
    let bytes = header.write();
    assert_ne!(bytes.len() % 32, 0);
    let (_, read) = read(&bytes, Some(bytes.len() as u64), usize::MAX);
    assert_eq!(read.unwrap().header_range(), 0..bytes.len() as u64);
}

/// Absent features are stored as zeros, and an unsplit file as a split count of 1.
#[test]
fn absent_features_are_none() {
    let counts = |experts: u64, files: u64| {
        let keys = [
            ("a.nextn_predict_layers", experts),
            ("a.expert_count", experts),
            ("a.expert_used_count", experts),
            ("split.count", files),
        ];
        let numbers = keys.map(|(key, number)| (key.to_owned(), number.to_string()));
        let name = ("general.architecture".to_owned(), "a".to_owned());
        let found = describe(&numbers.into_iter().chain([name]).collect(), None).unwrap();
        [found.draft_layers, found.experts, found.experts_per_token, found.files]
    };
    assert_eq!(counts(0, 1), [None; 4]);
    assert_eq!(counts(1, 2), [Some(1), Some(1), Some(1), Some(2)]);
}

#[test]
fn names_state_model_and_quantization() {
    let cases = [
        ("Llama-3.2-1B-Instruct-Q4_K_M", "Llama-3.2-1B-Instruct", "Q4_K_M"),
        ("llama-2-7b.Q4_0", "llama-2-7b", "Q4_0"),
        ("Phi-3-mini-4k-instruct-q4", "Phi-3-mini-4k-instruct", "Q4"),
        ("DeepSeek-R1-IQ4_KSS", "DeepSeek-R1", "IQ4_KSS"),
        ("DeepSeek-R1-IQ2_K_R4", "DeepSeek-R1", "IQ2_K_R4"),
        ("gemma-3-4b-it-q4_0", "gemma-3-4b-it", "Q4_0"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL", "Qwen3-30B-A3B", "UD-Q4_K_XL"),
        ("Model.i1-IQ2_XXS", "Model", "I1-IQ2_XXS"),
        ("ggml-model-f16", "ggml-model", "F16"),
        ("x-Q4_K_M-imat", "x", "Q4_K_M"),
        ("Model-Q4_K_M-v1", "Model-v1", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4", "gpt-oss-20b", "MXFP4"),
        ("x-Q4_0_4_8", "x", "Q4_0_4_8"),
        ("q4_k_m", "", "Q4_K_M"),
        ("BitNet-TQ1_0", "BitNet", "TQ1_0"),
        ("Q8", "", "Q8"),
        ("Q4_0-of-Q8_0", "Q4_0-of", "Q8_0"),
    ];
    for (stem, model, variant) in cases {
        let parts = Gguf.split_name(stem).unwrap();
        assert_eq!((&*parts.model, &*parts.variant), (model, variant), "{stem}");
        assert!(parts.is_quantized && parts.kind == WeightsKind::Model, "{stem}");
    }
    for stem in ["model", "Qwen-7B", "Q", "q_4", "Q9_0", "Q4_k_z", "F8", "", "a.b-c"] {
        assert_eq!(Gguf.split_name(stem).unwrap(), WeightFileName::new(stem));
    }
}

#[test]
fn non_model_files_are_recognized() {
    let cases = [
        ("mmproj-model-f16", WeightsKind::Projector),
        ("gemma-3-4b-it-mmproj-BF16", WeightsKind::Projector),
        ("imatrix_unsloth", WeightsKind::ImportanceMatrix),
        ("Llama-3.imatrix", WeightsKind::ImportanceMatrix),
        ("my-LoRA-f16", WeightsKind::Adapter),
        ("adapter", WeightsKind::Adapter),
        ("explora-7b-Q4_0", WeightsKind::Model),
    ];
    for (stem, kind) in cases {
        assert_eq!(Gguf.split_name(stem).unwrap().kind, kind, "{stem}");
    }
}
