//! Tests of the parser with files of torch, which `tests/oracles/pytorch.py` writes, and with malformed ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{PyTorch, is_allowed_import};
use crate::formats::{FileHeader, Format, HeaderError, Step};

/// The content of `oracle.json`.
#[derive(Deserialize)]
struct Oracle {
    files: BTreeMap<String, LoadedFile>,
    malicious: BTreeMap<String, Vec<String>>,
    rejected: BTreeMap<String, String>,
    allowed: BTreeMap<String, bool>,
}

/// The tensors that `torch.load` finds in a file, and the elements that the file stores for them.
#[derive(Deserialize)]
struct LoadedFile {
    tensors: BTreeMap<String, LoadedTensor>,
    stored: u64,
}

#[derive(Debug, Deserialize, PartialEq)]
struct LoadedTensor {
    dtype: String,
    shape: Vec<u64>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch")
}

fn oracle() -> Oracle {
    serde_json::from_slice(&fs::read(folder().join("oracle.json")).unwrap()).unwrap()
}

/// Parses a file, of which at most `chunk` bytes are read at once. Returns the number of reads, too.
fn parse_in_chunks(file: &[u8], chunk: usize) -> Result<(FileHeader, usize), HeaderError> {
    let mut parser = PyTorch.parser(&"model.bin".parse().unwrap(), 1 << 30);
    let (mut range, mut reads) = (parser.first_range(), 0);
    loop {
        let at = |offset: u64| usize::try_from(offset).unwrap().min(file.len());
        let (start, end) = (at(range.start), at(range.end));
        let bytes = file[start..end.min(start.saturating_add(chunk))].to_vec();
        reads += 1;
        match parser.advance(range.start, bytes, Some(file.len() as u64))? {
            Step::Read(next) => range = next,
            Step::Done(header) => return Ok((header, reads)),
        }
    }
}

fn parse(file: &[u8]) -> Result<FileHeader, HeaderError> {
    Ok(parse_in_chunks(file, usize::MAX)?.0)
}

/// Returns all loaded tensors: those in the table, with the shapes of views, and aliases.
fn loaded_tensors(header: &FileHeader) -> BTreeMap<String, LoadedTensor> {
    let stored =
        header.tensors().iter().map(|(name, tensor)| (name.to_owned(), tensor.dtype, tensor.shape));
    let views = &header.pickle().unwrap().views;
    let views =
        views.iter().map(|view| (view.name.clone(), view.dtype.clone(), view.shape.clone()));
    let loaded = |(name, dtype, shape): (String, crate::Dtype, Vec<u64>)| {
        (name, LoadedTensor { dtype: dtype.to_string(), shape })
    };
    stored.chain(views).map(loaded).collect()
}

#[test]
fn tensors_are_those_of_torch_load() {
    let oracle = oracle();
    assert!(oracle.files.len() >= 70, "only {} files", oracle.files.len());
    for (name, expected) in oracle.files {
        let file = fs::read(folder().join(&name)).unwrap();
        let (header, reads) =
            parse_in_chunks(&file, usize::MAX).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(loaded_tensors(&header), expected.tensors, "{name}");
        let stored: u64 =
            header.tensors().iter().map(|(_, tensor)| tensor.elements().unwrap()).sum();
        assert_eq!(stored, expected.stored, "{name}");
        assert!(header.data_length() <= file.len() as u64, "{name}");
        assert_eq!((header.file_size(), reads), (file.len() as u64, 1), "{name}");
        let is_rejected = |import: &&String| !is_allowed_import(import);
        let rejected: Vec<_> =
            header.pickle().unwrap().imports.iter().filter(is_rejected).collect();
        // A pickle of protocol 4 has an opcode for `frozenset`.
        let is_plain = !name.starts_with("module")
            && (!name.contains("extras") || name.ends_with("-4.bin") || name.ends_with("-5.bin"));
        assert_eq!(rejected.is_empty(), is_plain, "{name}: {rejected:?}");
        assert_eq!(parse_in_chunks(&file, 1_000).unwrap().0, header, "{name}");
    }
}

#[test]
fn views_name_the_tensor_that_contains_them() {
    let views = |name: &str| {
        let header = parse(&fs::read(folder().join(name)).unwrap()).unwrap();
        let views = header.pickle().unwrap().views.iter();
        views.map(|view| format!("{} in {}", view.name, view.stored_in)).collect::<Vec<_>>()
    };
    assert_eq!(views("tied.bin"), ["lm_head.weight in wte.weight"]);
    assert_eq!(views("legacy-tied.bin"), ["lm_head.weight in wte.weight"]);
    assert_eq!(views("detached.bin"), ["b in a", "c in a"]);
    assert_eq!(views("base-and-slice.bin"), ["column in all", "row in all"]);
    assert_eq!(views("columns.bin"), ["even.again in even"]);
    assert_eq!(views("expanded.bin"), ["e in e", "s in s"]);
    assert_eq!(views("overlap.bin"), ["b in b", "c in c"]);
    assert_eq!(views("slices.bin"), [""; 0]);
}

/// An import is listed whether it is called or not. Files without a checkpoint list it in their error.
#[test]
fn all_imports_of_malicious_files_are_listed() {
    let oracle = oracle();
    assert!(oracle.malicious.len() >= 29);
    for (name, expected) in oracle.malicious {
        let parsed = parse(&fs::read(folder().join(&name)).unwrap());
        match parsed {
            Ok(header) => {
                let imports = &header.pickle().unwrap().imports;
                assert!(
                    expected.iter().all(|import| imports.contains(import)),
                    "{name}: {imports:?}"
                );
                assert!(expected.iter().all(|import| !is_allowed_import(import)), "{name}");
            }
            Err(error) => {
                let message = error.to_string();
                assert!(
                    expected.iter().all(|import| message.contains(import)),
                    "{name}: {message}"
                );
            }
        }
    }
    assert!(!Path::new("canary").exists(), "a pickle was executed");
}

#[test]
fn other_files_are_rejected_with_a_reason() {
    for (name, expected) in oracle().rejected {
        let error = parse(&fs::read(folder().join(&name)).unwrap()).unwrap_err().to_string();
        assert!(error.contains(&expected), "{name}: {error}");
    }
}

/// The checksum of CRC-32 in every archive of torch finds a changed letter in the name of a tensor.
#[test]
fn a_changed_pickle_does_not_match_its_checksum() {
    let mut file = fs::read(folder().join("tied.bin")).unwrap();
    let at = file.windows(10).position(|bytes| bytes == b"wte.weight").unwrap();
    file[at] = b'x';
    assert!(message(&file).contains("does not match its checksum"), "{}", message(&file));
}

/// The first bytes that `ctranslate2`, fastText and `llama.cpp` before GGUF write.
#[test]
fn other_programs_are_recognized() {
    let cases: [(&[u8], &str); 4] = [
        (b"\x06\0\0\0\x0c\0WhisperSpec\0\x03\0\0\0", "a CTranslate2 model"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0\x10\0\0\0", "a fastText model"),
        (b"lmgg\x01\0\0\0\0\x7d\0\0", "a GGML file"),
        (b"tjgg\x03\0\0\0\0\x7d\0\0", "a GGML file"),
    ];
    for (start, expected) in cases {
        let error = parse(start).unwrap_err().to_string();
        assert_eq!(error, format!("the file is {expected}, not a checkpoint"));
    }
}

#[test]
fn imports_are_accepted_as_in_torch() {
    let allowed = oracle().allowed;
    assert!(allowed.len() > 100);
    for import in allowed.keys() {
        assert!(is_allowed_import(import), "{import}");
    }
    for import in [
        "torch.load",
        "torch",
        "",
        "torch.storage.eval",
        "builtins.eval",
        "os.set",
        "torch.Storage",
        "collections.abc.OrderedDict",
    ] {
        assert!(!is_allowed_import(import), "{import}");
    }
}

/// Writes an archive without compression. Each entry has a name, its data and the size in the directory.
fn archive(entries: &[(&str, &[u8], u64)]) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let short = |n: usize| u16::try_from(n).unwrap().to_le_bytes();
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data, size) in entries {
        let fields: [&[u8]; 9] = [
            b"PK\x01\x02",
            &[0; 16],
            // The sizes are in the ZIP64 field.
            &[0xff; 8],
            &short(name.len()),
            &short(20),
            &[0; 10],
            &number(file.len()),
            name.as_bytes(),
            &[1, 0, 16, 0],
        ];
        directory.extend(fields.concat());
        directory.extend([size.to_le_bytes(), size.to_le_bytes()].concat());
        let name_length = short(name.len());
        let padding = [3, 0];
        let fields: [&[u8]; 6] =
            [b"PK\x03\x04", &[0; 22], &name_length, &padding, name.as_bytes(), b"pad"];
        file.extend([&fields.concat(), *data].concat());
    }
    let (count, length) = (short(entries.len()), directory.len());
    let start = number(file.len());
    file.extend(directory);
    let fields: [&[u8]; 6] =
        [b"PK\x05\x06\0\0\0\0", &count, &count, &number(length), &start, &[0, 0]];
    file.extend(fields.concat());
    file
}

/// Writes a checkpoint with a pickle and storages.
fn checkpoint(pickle: &[u8], storages: &[(&str, u64)]) -> Vec<u8> {
    let zeros = vec![0; 1_000];
    let mut entries = vec![("a/data.pkl", pickle, pickle.len() as u64)];
    let names: Vec<_> = storages.iter().map(|(key, _)| format!("a/data/{key}")).collect();
    let sizes = storages.iter().map(|(_, size)| *size);
    let data = |size| &zeros[..usize::try_from(size).unwrap()];
    entries.extend(names.iter().zip(sizes).map(|(name, size)| (name.as_str(), data(size), size)));
    archive(&entries)
}

/// Returns the pickle of a tensor: its storage has 10 elements, and the sizes are lines of numbers.
fn tensor(length: &str, offset: &str, shape: &[&str], strides: &[&str]) -> Vec<u8> {
    let number = |line: &&str| format!("I{line}\n");
    let tuple = |lines: &[&str]| format!("({}t", lines.iter().map(number).collect::<String>());
    let (shape, strides) = (tuple(shape), tuple(strides));
    format!(
        "}}S'w'\nctorch._utils\n_rebuild_tensor\n(\
         (S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI{length}\ntQ\
         I{offset}\n{shape}{strides}tRs."
    )
    .into_bytes()
}

fn message(file: &[u8]) -> String {
    parse(file).map_or_else(|error| error.to_string(), |header| format!("{header:?}"))
}

#[test]
fn a_generated_checkpoint_is_valid() {
    let pickle = tensor("10", "1", &["3", "3"], &["3", "1"]);
    let header = parse(&checkpoint(&pickle, &[("0", 40)])).unwrap();
    let found = header.tensors().get("w").unwrap();
    assert_eq!((found.shape, found.data_offsets, header.data_length()), (vec![3, 3], (0, 36), 36));
}

/// The length of a storage, the offset, shape and strides of a tensor in it, and a part of the message.
type Outside<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str], &'a str);

#[test]
fn tensors_outside_of_their_storage_are_rejected() {
    let outside = "tensor `w` does not fit in its storage";
    let max = "9223372036854775807";
    let many = ["1"; 17];
    let cases: [Outside<'_>; 12] = [
        ("10", "2", &["3", "3"], &["3", "1"], outside),
        ("10", "0", &["11"], &["1"], outside),
        ("10", "11", &["1"], &["0"], outside),
        ("10", "0", &["-1"], &["1"], outside),
        ("10", "0", &["1"], &["-1"], outside),
        ("10", "0", &["1"], &["1", "1"], outside),
        ("10", "0", &many, &many, outside),
        ("10", "0", &[max, max], &[max, "1"], outside),
        ("10", max, &["1"], &["1"], outside),
        ("10", "-1", &["1"], &["1"], outside),
        (max, "0", &["1"], &["1"], "overflows 64 bits"),
        ("11", "0", &["1"], &["1"], "storage `0` has 44 bytes, but the file contains 40"),
    ];
    for (length, offset, shape, strides, expected) in cases {
        let found = message(&checkpoint(&tensor(length, offset, shape, strides), &[("0", 40)]));
        assert!(found.contains(expected), "{length} {offset} {shape:?} {strides:?}: {found}");
    }
    // An expanded tensor counts as the elements that it stores.
    let expanded = tensor("10", "0", &[max, max, "2"], &["0", "0", "1"]);
    let header = parse(&checkpoint(&expanded, &[("0", 40)])).unwrap();
    assert_eq!(header.tensors().get("w").unwrap().shape, [1, 1, 2]);
    let missing = message(&checkpoint(&tensor("10", "0", &["1"], &["1"]), &[("1", 40)]));
    assert_eq!(missing, "storage `0` has 40 bytes, but the file contains no such storage");
}

#[test]
fn malformed_archives_are_rejected() {
    let pickle = tensor("10", "0", &["1"], &["1"]);
    let valid = checkpoint(&pickle, &[("0", 40)]);
    let end = valid.len() - 22;
    let start_of_directory =
        u32::from_le_bytes(valid[end + 16..end + 20].try_into().unwrap()) as usize;
    let with = |at: usize, bytes: &[u8]| {
        let mut file = valid.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        message(&file)
    };
    let huge = u64::MAX.to_le_bytes();
    let cases = [
        (with(end + 12, &[0xff; 4]), "the central directory is outside of the file"),
        (with(end + 16, &[0xff; 4]), "the central directory is outside of the file"),
        (with(end + 10, &[9]), "the number of entries is wrong"),
        (with(end, b"x"), "it has no end record"),
        (with(start_of_directory, b"x"), "an entry is malformed"),
        (with(start_of_directory + 10, &[8]), "`data.pkl` is compressed"),
        (with(start_of_directory + 46 + 10 + 4 + 8, &huge), "an entry is malformed"),
        (with(start_of_directory + 16, &[1]), "`data.pkl` does not match its checksum"),
        (with(start_of_directory + 42, &[1]), "`data.pkl` has no local header"),
        (with(26, &[0xff, 0xff]), "bytes are available"),
        (message(&archive(&[("a/data.pkl", b".", 9)])), "entries overlap"),
        (
            message(&archive(&[("a/data.pkl", b"N.", 2), ("a/data.pkl", b"N.", 2)])),
            "an entry is malformed",
        ),
        (
            message(&archive(&[("a/data.pkl", b"N.", 2), ("b/data.pkl", b"N.", 2)])),
            "a ZIP archive with several `data.pkl`",
        ),
        (message(&archive(&[("a/b/data.pkl", b"N.", 2)])), "without `data.pkl`"),
    ];
    for (at, (found, expected)) in cases.iter().enumerate() {
        assert!(found.contains(expected), "{at}: {found}");
    }
}

/// A file with a directory of 4 GiB is rejected before the directory is read.
#[test]
fn sizes_over_the_limit_are_not_requested() {
    let mut parser = PyTorch.parser(&"model.bin".parse().unwrap(), 1 << 30);
    let size = 8_u64 << 30;
    assert_eq!(parser.first_range(), 0..1 << 17);
    let start = [b"PK\x03\x04".as_slice(), &vec![0; (1 << 17) - 4]].concat();
    let Step::Read(tail) = parser.advance(0, start, Some(size)).unwrap() else { panic!() };
    assert_eq!(tail, size - (1 << 17)..size);
    let mut bytes = vec![0; 1 << 17];
    let at = bytes.len() - 22;
    bytes[at..at + 20].copy_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\xf0\xff\xff\xff\0\0\0\0");
    let error = parser.advance(tail.start, bytes, Some(size)).unwrap_err();
    // The directory, which includes the first range, and the range at the end.
    let length = 0xffff_fff0 + (1 << 17);
    assert_eq!(error, HeaderError::too_large(length, 8 << 20));
}

#[test]
fn pickles_that_take_too_much_are_rejected() {
    let repeated = |bytes: &[u8], times: usize, end: &[u8]| [&bytes.repeat(times), end].concat();
    let million = 1 << 20;
    let cases = [
        ("stack", repeated(b"N", million, b"."), "the stack is too deep"),
        ("marks", repeated(b"(", million, b"."), "the stack is too deep"),
        (
            "memo",
            [
                b"N".to_vec(),
                (0..million / 2).flat_map(|at| format!("p{at}\n").into_bytes()).collect(),
            ]
            .concat(),
            "it has too many values",
        ),
        ("lists", repeated(b"]0", million, b"N."), "it has too many values"),
        ("tuples", repeated(b")0", million, b"N."), "it has too many values"),
        (
            "imports",
            [
                (0..10_000).flat_map(|at| format!("cx\n{at}\n0").into_bytes()).collect(),
                b"N.".to_vec(),
            ]
            .concat(),
            "it has too many imports",
        ),
        ("long text", [b"X\xff\xff\xff\xff".to_vec(), vec![0; 100]].concat(), "it is truncated"),
        ("longer text", [b"\x8d".to_vec(), vec![0xff; 8]].concat(), "it is truncated"),
        ("nested tuples", repeated(b"\x85", million / 4, b"."), "the stack is empty"),
        (
            "deep tuples",
            [b"N".to_vec(), b"\x85".repeat(100_000), b".".to_vec()].concat(),
            "more tensors or longer names",
        ),
        (
            "deep lists",
            [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat(),
            "more tensors or longer names",
        ),
        (
            "deep dicts",
            [b"}N".repeat(100_000), b"Ns".to_vec(), b"s".repeat(99_999), b".".to_vec()].concat(),
            "more tensors or longer names",
        ),
        ("shared tuples", [b"]q\0".to_vec(), b"2\x86".repeat(10_000), b".".to_vec()].concat(), ""),
        ("cycle", b"]q\0h\0a.".to_vec(), ""),
        ("extension", b"\x82\x01.".to_vec(), "extension codes are not supported"),
        ("no mark", b"t.".to_vec(), "a mark is missing"),
        ("wrong get", b"h\x05.".to_vec(), "a memo entry is missing"),
        ("wrong append", b"NNa.".to_vec(), "not a collection"),
        ("wrong global", b"NN\x93.".to_vec(), "the name of an import is not a text"),
        ("no stop", b"N".to_vec(), "it is truncated"),
        ("empty", Vec::new(), "it is truncated"),
    ];
    for (name, pickle, expected) in cases {
        let found = message(&checkpoint(&pickle, &[]));
        if expected.is_empty() {
            assert!(found.starts_with("FileHeader"), "{name}: {found}");
        } else {
            assert!(found.contains(expected), "{name}: {found}");
        }
    }
}

/// A tensor at the end of 100,000 nested collections has too long a name.
#[test]
fn names_of_nested_tensors_are_limited() {
    let mut pickle = tensor("10", "0", &["1"], &["1"]);
    pickle.pop();
    let nested = [&b"]".repeat(100_000), &pickle[..], &b"a".repeat(100_000), b"."].concat();
    let found = message(&checkpoint(&nested, &[("0", 40)]));
    assert!(found.contains("more tensors or longer names"), "{found}");
}

#[test]
fn truncated_files_are_rejected_at_every_byte() {
    for name in ["tied.bin", "legacy-tied.bin", "protocol-5.bin", "malicious-legacy.bin"] {
        let file = fs::read(folder().join(name)).unwrap();
        for length in 0..file.len() {
            assert!(parse(&file[..length]).is_err(), "{name}: {length}");
        }
    }
}

/// Any changed byte gives a header or an error.
#[test]
fn changed_files_do_not_panic() {
    for name in ["columns.bin", "legacy-slices.bin", "legacy-extras.bin"] {
        let file = fs::read(folder().join(name)).unwrap();
        for at in 0..file.len() {
            for change in [0, 0xff, b'.'] {
                let mut file = file.clone();
                file[at] = change;
                if let Ok(header) = parse(&file) {
                    assert!(header.data_length() <= file.len() as u64, "{name}: {at} {change}");
                }
            }
        }
    }
}

/// Returns a file that takes as much memory as the limits allow.
#[cfg(target_os = "linux")]
fn hostile_file(name: &str) -> Vec<u8> {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| {
        (0..count).map(line).collect::<String>().into_bytes()
    };
    match name {
        "memo" => {
            checkpoint(&[b"N".to_vec(), lines(340_000, &|at| format!("p{at}\n"))].concat(), &[])
        }
        "collections" => {
            checkpoint(&[b"](".to_vec(), b"]".repeat(200_000), b"e.".to_vec()].concat(), &[])
        }
        "one collection" => {
            let batch = [b"(".to_vec(), b"N".repeat(250_000), b"e".to_vec()].concat();
            checkpoint(&[b"]".to_vec(), batch.repeat(4), b".".to_vec()].concat(), &[])
        }
        "stack" => checkpoint(&b"(".repeat(8_000_000), &[]),
        "entries" => {
            let names: Vec<_> = (0..65_000).map(|at| format!("{at:x}")).collect();
            archive(&names.iter().map(|name| (name.as_str(), &b""[..], 0)).collect::<Vec<_>>())
        }
        "imports" => {
            let import = |at| format!("c{}\n{at:0250}\n0", "m".repeat(250));
            checkpoint(&[lines(999, &import), b"N.".to_vec()].concat(), &[])
        }
        // Tensors with the same elements are listed as views.
        "tensors" => {
            let key = "k".repeat(90);
            let parts = "ctorch._utils\n_rebuild_tensor\np0\n0(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\n\
                         I10\ntQp1\n0(I2\nI5\ntp2\n0(I5\nI1\ntp3\n0";
            let tensors = lines(65_000, &|at| format!("S'{at}'\ng0\n(g1\nI0\ng2\ng3\ntRs"));
            let end = b"s.".to_vec();
            let start = format!("{parts}}}S'{key}'\n}}").into_bytes();
            checkpoint(&[start, tensors, end].concat(), &[("0", 40)])
        }
        "pickles" => {
            let magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec();
            [magic, b"](".to_vec(), b"K\x01".repeat(4_100_000)].concat()
        }
        _ => vec![0; 8 << 20],
    }
}

/// Parses each file in a separate process, whose peak memory the system records. It includes the file, the test
/// program, and what the parser keeps.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "the process of a file tells the test its peak")]
#[test]
fn hostile_files_take_less_than_64_mb() {
    const FILE: &str = "HF_META_TEST_HOSTILE_FILE";
    const TEST: &str = "formats::pytorch::tests::hostile_files_take_less_than_64_mb";

    if let Ok(name) = std::env::var(FILE) {
        let file = hostile_file(&name);
        let result = parse(&file);
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let result = result.map(|header| header.tensors().len());
        println!("peak {} after {result:?}", peak.trim().trim_end_matches(" kB"));
        return;
    }
    let names = [
        "memo",
        "collections",
        "one collection",
        "stack",
        "entries",
        "imports",
        "tensors",
        "pickles",
    ];
    for name in names {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args([TEST, "--exact", "--nocapture"]).env(FILE, name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let peak = text.lines().find_map(|line| line.strip_prefix("peak ")?.split_once(' '));
        let (peak, result) = peak.unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(peak.parse::<u64>().unwrap() < 64_000, "{name}: {peak} KiB {result}");
    }
}
