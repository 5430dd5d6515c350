//! Tests of the parser with files of torch, which `tests/oracles/pytorch.py` writes, and with malformed ones.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::values::too_large;
use super::{PyTorch, is_allowed_import};
use crate::formats::DetectedFormat;
use crate::formats::{
    FileHeader, Format, HeaderError, HeaderErrorKind, Step, TrainingEntry, read_header,
};

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
    parse_within(file, chunk, 1 << 30)
}

/// Parses a file with a limit of the header in bytes.
fn parse_within(file: &[u8], chunk: usize, limit: u64) -> Result<(FileHeader, usize), HeaderError> {
    let mut parser = PyTorch.parser(&"model.bin".parse().unwrap(), limit);
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
    let views = &header.pickle.as_deref().unwrap().views;
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
            header.pickle.as_deref().unwrap().imports.iter().filter(is_rejected).collect();
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
        let views = header.pickle.as_deref().unwrap().views.iter();
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

/// Of several values of a key, Python keeps the last.
#[test]
fn a_repeated_key_has_its_last_value() {
    let item = |name: &str, storage: u8| {
        format!(
            "S'{name}'\nctorch._utils\n_rebuild_tensor\n\
             ((S'storage'\nctorch\nFloatStorage\nS'{storage}'\nS'cpu'\nI10\ntQI0\n(I10\nt(I1\nttRs"
        )
    };
    let tensors = |items: [String; 3]| {
        let pickle = format!("}}{}.", items.concat());
        let header = parse(&checkpoint(pickle.as_bytes(), &[("0", 40), ("1", 40)])).unwrap();
        let names = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(" ");
        let aliases = &header.pickle.as_deref().unwrap().views;
        (names(&mut header.tensors().names()), names(&mut aliases.iter().map(|alias| &*alias.name)))
    };
    let found = |one: &str, two: &str| (one.to_owned(), two.to_owned());
    assert_eq!(tensors([item("a", 1), item("b", 0), item("a", 0)]), found("a", "b"));
    assert_eq!(tensors([item("a", 1), item("b", 0), item("c", 0)]), found("a b", "c"));
    assert_eq!(tensors([item("a", 0), item("b", 1), "S'a'\nNs".to_owned()]), found("b", ""));
}

/// Returns the pickle of a dictionary of tensors of 10 elements, and of other values.
fn dictionary(entries: &[(&str, &str)]) -> String {
    let entry = |(key, value): &(&str, &str)| format!("S'{key}'\n{value}");
    format!("({}d", entries.iter().map(entry).collect::<String>())
}

/// The pickle of a tensor in a storage with a one-letter key.
fn float(storage: &str) -> String {
    format!(
        "ctorch._utils\n_rebuild_tensor\n\
         ((S'storage'\nctorch\nFloatStorage\nS'{storage}'\nS'cpu'\nI10\ntQI0\n(I10\nt(I1\nttR"
    )
}

/// Parses a dictionary. Returns the names of its tensors, and the entries that are not the model.
fn entries(root: &[(&str, &str)]) -> (Vec<String>, Vec<(String, TrainingEntry)>) {
    let storages: Vec<_> = ["a", "b", "c", "d", "e", "f"].iter().map(|key| (*key, 40)).collect();
    let pickle = format!("{}.", dictionary(root));
    let header = parse(&checkpoint(pickle.as_bytes(), &storages)).unwrap();
    let names = header.tensors().names().map(str::to_owned).collect();
    (names, header.pickle.unwrap().entries)
}

#[test]
fn the_state_dictionary_of_a_training_checkpoint_is_the_model() {
    use TrainingEntry::{Copy, OptimizerState, Value};

    let [a, b, c, d] = ["a", "b", "c", "d"].map(float);
    let model = dictionary(&[("up.weight", &a), ("down.weight", &b)]);
    let average = dictionary(&[("ema.up.weight", &c), ("ema.down.weight", &d)]);
    let moments = dictionary(&[("0", &dictionary(&[("exp_avg", &c), ("exp_avg_sq", &d)]))]);
    let groups = dictionary(&[("lr", "F0.1\n")]);
    let adam = dictionary(&[("state", &moments), ("param_groups", &format!("({groups}l"))]);
    let settings = dictionary(&[("shift", &c), ("layers", "I12\n"), ("name", "S'x'\n")]);
    let roles = |root: &[(&str, &str)]| entries(root).1;
    let role = |name: &str, role| vec![(name.to_owned(), role)];
    assert_eq!(
        roles(&[("ema_model_state_dict", &average), ("model_state_dict", &model)]),
        role("ema_model_state_dict", Copy)
    );
    assert_eq!(roles(&[("generator", &model), ("averaged", &average)]), role("averaged", Copy));
    assert_eq!(roles(&[("model", &model), ("adam", &adam)]), role("adam", OptimizerState));
    let list = format!("({adam}l");
    assert_eq!(roles(&[("states", &list), ("net", &model)]), role("states", OptimizerState));
    assert_eq!(
        roles(&[("config", &dictionary(&[("x", &c)])), ("net", &model)]),
        role("config", Value)
    );
    assert_eq!(roles(&[("run", &settings), ("net", &model)]), role("run", Value));
    assert_eq!(roles(&[("loss", &c), ("model_state_dict", &model)]), role("loss", Value));
    let wrapped = dictionary(&[("model", &model), ("model_ema", &average)]);
    assert_eq!(roles(&[("state", &wrapped), ("epoch", "I3\n")]), role("state.model_ema", Copy));
    // Without a state dictionary, nothing is known.
    assert_eq!(roles(&[("w", &a), ("config", &settings)]), []);
    assert_eq!(roles(&[("up.weight", &a), ("down.weight", &b)]), []);
    assert_eq!(roles(&[("netG_A", &model), ("netG_B", &average)]), []);
    assert_eq!(roles(&[("encoder", &model), ("head", &dictionary(&[("weight", &c)]))]), []);
}

/// Lightning stores the settings of a model, which may be a part of it.
#[test]
fn tensors_of_the_model_have_its_names() {
    let [a, b] = ["a", "b"].map(float);
    let model = dictionary(&[("up.weight", &a), ("down.weight", &b)]);
    let settings = dictionary(&[("backbone", &a)]);
    for root in [
        [("hyper_parameters", &*settings), ("state_dict", &*model)],
        [("state_dict", &*model), ("hyper_parameters", &*settings)],
    ] {
        let (names, entries) = entries(&root);
        assert_eq!(names, ["state_dict.up.weight", "state_dict.down.weight"]);
        assert_eq!(entries, [("hyper_parameters".to_owned(), TrainingEntry::Value)]);
    }
}

#[test]
fn archives_of_other_programs_are_named() {
    let mut tar = vec![0; 1_024];
    tar[..7].copy_from_slice(b"weights");
    tar[257..262].copy_from_slice(b"ustar");
    let mut old = tar.clone();
    old[..8].copy_from_slice(b"sys_info");
    for (file, expected) in [
        (&tar[..], "the file looks like a tar archive (a checkpoint of torch before 0.1.10?)"),
        (&old, "the file looks like a tar archive (a checkpoint of torch before 0.1.10?)"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "the file is a gzip archive, not a checkpoint"),
    ] {
        assert_eq!(parse(file).unwrap_err().to_string(), expected);
    }
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
                let imports = &header.pickle.as_deref().unwrap().imports;
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

/// Any byte may be an opcode, so a file of another program can begin like a pickle.
#[test]
fn unknown_files_are_not_pickles() {
    for first in 0..=u8::MAX {
        for next in [0, 1, b'\n', b'q', 0xff] {
            let file = [&[first], &[next; 40][..]].concat();
            if DetectedFormat::recognize_or_text(&file).is_none() {
                let error = parse(&file).unwrap_err();
                let kind = HeaderErrorKind::NotACheckpoint;
                assert_eq!(error.kind, kind, "{first:#x} {next}: {error}");
            }
        }
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
    let (count, length) = (entries.len(), directory.len());
    let start = number(file.len());
    if count > usize::from(u16::MAX) {
        return [file, directory_with_zip64_end(&directory, count, start)].concat();
    }
    let count = short(count);
    file.extend(directory);
    let fields: [&[u8]; 6] =
        [b"PK\x05\x06\0\0\0\0", &count, &count, &number(length), &start, &[0, 0]];
    file.extend(fields.concat());
    file
}

/// Appends the end records of an archive with more than 65,535 entries to its directory.
fn directory_with_zip64_end(directory: &[u8], count: usize, start: [u8; 4]) -> Vec<u8> {
    let wide = |n: usize| (n as u64).to_le_bytes();
    let start = u32::from_le_bytes(start) as usize;
    let record = [&b"PK\x06\x06"[..], &[0; 28], &wide(count), &wide(directory.len()), &wide(start)];
    let locator = [&b"PK\x06\x07\0\0\0\0"[..], &wide(start + directory.len()), &[0; 4]];
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &[0xff; 12], &[0, 0]];
    [directory, &record.concat(), &locator.concat(), &end.concat()].concat()
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

/// Python 2 writes an `OrderedDict` as a call with a list of pairs, which are lists, too.
#[test]
fn an_ordered_dict_of_python_2_has_its_names() {
    let value = tensor("10", "0", &["5"], &["1"]);
    let value = value.strip_prefix(b"}S'w'\n").unwrap().strip_suffix(b"s.").unwrap();
    let pair = |key: &[u8], value: &[u8]| [b"](S'", key, b"'\n", value, b"ea"].concat();
    let dict = |pairs: &[u8]| [b"ccollections\nOrderedDict\n(]", pairs, b"tR"].concat();
    let inner = dict(&[pair(b"up", value), pair(b"down", value)].concat());
    let metadata = b"}S'_metadata'\nccollections\nOrderedDict\n(]tRsb.";
    let pickle = [dict(&pair(b"h.0", &inner)), metadata.to_vec()].concat();
    let header = parse(&checkpoint(&pickle, &[("0", 40)])).unwrap();
    assert_eq!(loaded_tensors(&header).keys().collect::<Vec<_>>(), ["h.0.down", "h.0.up"]);
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
        (with(start_of_directory + 42, &[1]), "`data.pkl` has no local header"),
        (with(26, &[0xff, 0xff]), "bytes are available"),
        (message(&archive(&[("a/data.pkl", b".", 9)])), "entries overlap"),
        (
            message(&archive(&[("a/data.pkl", b"N.", 2), ("a/data.pkl", b"N.", 2)])),
            "two have the same name",
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
    let mut parser = PyTorch.parser(&"model.bin".parse().unwrap(), u64::MAX);
    let size = 8_u64 << 30;
    assert_eq!(parser.first_range(), 0..1 << 17);
    let start = [b"PK\x03\x04".as_slice(), &vec![0; (1 << 17) - 4]].concat();
    let Step::Read(tail) = parser.advance(0, start, Some(size)).unwrap() else { panic!() };
    assert_eq!(tail, size - (1 << 17)..size);
    let mut bytes = vec![0; 1 << 17];
    let at = bytes.len() - 22;
    bytes[at..at + 20].copy_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\xf0\xff\xff\xff\0\0\0\0");
    let error = parser.advance(tail.start, bytes, Some(size)).unwrap_err();
    assert_eq!(error, too_large());
}

/// A header above the limit is too large, in whatever range it arrives, and even if it is malformed after the limit.
#[test]
fn the_limit_of_a_header_is_exact() {
    let read = |name: &str| fs::read(folder().join(name)).unwrap();
    let large = checkpoint_of(3_000);
    let legacy = read("legacy-tied.bin");
    let mut malformed = legacy.clone();
    malformed.truncate(legacy.len() / 2);
    for (name, file, header) in [
        ("archive", read("tied.bin"), None),
        ("archive of several ranges", large, None),
        ("pickles", legacy, None),
        ("malformed", malformed, Some(100)),
    ] {
        let kind = |limit| parse_within(&file, usize::MAX, limit).err().map(|error| error.kind);
        let (mut low, mut high) = (0, header.unwrap_or(file.len() as u64 + 1_000_000));
        assert_eq!(kind(high).is_none(), header.is_none(), "{name}");
        while header.is_none() && high - low > 1 {
            let middle = low.midpoint(high);
            if kind(middle).is_none() { high = middle } else { low = middle }
        }
        assert!(high > 1, "{name}");
        for limit in [1, 2, 9, high / 2, high - 1] {
            assert_eq!(kind(limit), Some(HeaderErrorKind::OverLimit), "{name}: {limit} of {high}");
        }
    }
}

#[test]
fn pickles_that_take_too_much_are_rejected() {
    let repeated = |bytes: &[u8], times: usize, end: &[u8]| [&bytes.repeat(times), end].concat();
    let million = 1 << 20;
    let cases = [
        ("stack", repeated(b"N", million, b"."), "the stack is too deep"),
        ("marks", repeated(b"(", million, b"."), "the stack is too deep"),
        ("memo", [&b"N"[..], b"p100\n."].concat(), "a memo index is too large"),
        ("lists", repeated(b"]0", 10 * million, b"N."), "larger than this reader's limits"),
        ("tuples", repeated(b")0", 11 * million, b"N."), "larger than this reader's limits"),
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
        ("deep tuples", [b"N".to_vec(), b"\x85".repeat(100_000), b".".to_vec()].concat(), ""),
        ("deep lists", [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat(), ""),
        (
            "deep dicts",
            [b"}N".repeat(100_000), b"Ns".to_vec(), b"s".repeat(99_999), b".".to_vec()].concat(),
            "",
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
    assert!(found.contains("larger than this reader's limits"), "{found}");
}

#[test]
fn long_imports_do_not_make_a_long_message() {
    let imports: Vec<_> =
        (0..20).map(|number| format!("c{}{number}\nname\n", "a".repeat(300))).collect();
    let file = format!("\u{2}{}.", imports.concat());
    let file = [b"\x80", file.as_bytes()].concat();
    let found = parse(&file).unwrap_err().to_string();
    assert!(found.contains("it imports `aaa") && found.chars().count() < 500, "{found}");
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

/// Returns a checkpoint of a number of tensors, as `torch.save` writes it.
fn checkpoint_of(count: usize) -> Vec<u8> {
    let start =
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x010ccollections\nOrderedDict\nq\x020\
                  ctorch\nFloatStorage\nq\x030X\x07\0\0\0storageq\x040X\x03\0\0\0cpuq\x050}";
    let mut pickle = start.to_vec();
    let mut memo = 5_u32;
    for at in 0..count {
        let text = |text: &str| {
            [b"X", &u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
        };
        let (layer, key) = (at / 1_000, text(&at.to_string()));
        let name = text(&format!("model.layers.{layer}.mlp.experts.{at}.down_proj.weight"));
        if at % 1_000 == 0 {
            pickle.extend(if at == 0 { &b"("[..] } else { b"u(" });
        }
        let parts: [&[u8]; 8] = [
            &name,
            &[b"h\x01((h\x04h\x03", &key[..]].concat(),
            b"h\x05K\x04t",
            b"QK\0K\x02K\x02\x86",
            b"K\x02K\x01\x86",
            b"\x89h\x02)R",
            b"t",
            b"R",
        ];
        // Every text, tuple and object gets an entry of the memo.
        for part in parts {
            memo += 1;
            pickle.extend([part, b"r", &memo.to_le_bytes()].concat());
        }
    }
    pickle.extend(b"u.");
    let names: Vec<_> = (0..count).map(|at| format!("pytorch_model/data/{at}")).collect();
    let mut entries = vec![("pytorch_model/data.pkl", &pickle[..], pickle.len() as u64)];
    entries.extend(names.iter().map(|name| (name.as_str(), &[0; 16][..], 16)));
    archive(&entries)
}

/// Returns a pickle of a module with one state of thousands of entries, which is added to it many times.
fn repeated_state(entry: &str, thousands: usize, times: usize) -> Vec<u8> {
    let batch = format!("({}u", entry.repeat(1_000));
    let state = format!("ctorch.nn\nModule\n)R}}p0\n{}b", batch.repeat(thousands));
    [state.as_bytes(), &b"h\0b".repeat(times), b"."].concat()
}

/// The result of reading a file that takes as much memory and time as the limits allow.
const HOSTILE_FILES: [(&str, &str); 16] = [
    ("memo", ""),
    ("collections", "larger than this reader's limits"),
    ("stack", "the stack is too deep"),
    ("entries", "larger than this reader's limits"),
    ("imports", ""),
    ("tensors", "larger than this reader's limits"),
    ("views", "larger than this reader's limits"),
    ("pickles", "larger than this reader's limits"),
    ("modules", "larger than this reader's limits"),
    ("states", ""),
    ("repeated states", "larger than this reader's limits"),
    ("plain keys", "larger than this reader's limits"),
    ("long keys", "larger than this reader's limits"),
    ("20,000", "20000 tensors"),
    ("60,000", "60000 tensors"),
    ("100,000", "100000 tensors"),
];

/// Returns a file that takes as much memory as the limits allow.
#[cfg(target_os = "linux")]
fn hostile_file(name: &str) -> Vec<u8> {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| {
        (0..count).map(line).collect::<String>().into_bytes()
    };
    // Tensors with the same elements are listed as views.
    let tensors = |count: usize, key: &dyn Fn(usize) -> String| {
        let parts = "ctorch._utils\n_rebuild_tensor\np0\n0(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\n\
                     I10\ntQp1\n0(I2\nI5\ntp2\n0(I5\nI1\ntp3\n0";
        let tensors = lines(count, &|at| format!("{}g0\n(g1\nI0\ng2\ng3\ntRs", key(at)));
        checkpoint(&[parts.as_bytes(), b"}", &tensors, b"."].concat(), &[("0", 40)])
    };
    match name {
        "memo" => checkpoint(
            &[b"N".to_vec(), lines(3_000_000, &|at| format!("p{at}\n")), b".".to_vec()].concat(),
            &[],
        ),
        "collections" => {
            let batch = [b"(".to_vec(), b"]".repeat(200_000), b"e".to_vec()].concat();
            checkpoint(&[b"]".to_vec(), batch.repeat(25), b".".to_vec()].concat(), &[])
        }
        "stack" => checkpoint(&b"(".repeat(20_000_000), &[]),
        "entries" => {
            let names: Vec<_> = (0..270_000).map(|at| format!("{at:x}")).collect();
            archive(&names.iter().map(|name| (name.as_str(), &b""[..], 0)).collect::<Vec<_>>())
        }
        "imports" => {
            let import = |at| format!("c{}\n{at:0250}\n0", "m".repeat(250));
            checkpoint(&[lines(999, &import), b"N.".to_vec()].concat(), &[])
        }
        "tensors" => tensors(600_000, &|at| format!("S'{at}'\n")),
        "views" => tensors(90_000, &|at| format!("S'{at:0200}'\n")),
        "pickles" => {
            let magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec();
            let text = [&b"X\0\0\0\x01"[..], &vec![b'a'; 1 << 24], b"0]"].concat();
            let batch = [b"(".to_vec(), b"]".repeat(200_000), b"e".to_vec()].concat();
            [magic, text, batch.repeat(20)].concat()
        }
        "modules" => checkpoint(&repeated_state("S'_modules'\n]", 3, 17_000), &[]),
        "states" => checkpoint(&[&b"cx\ny\n)R"[..], &b"Nb".repeat(4_000_000), b"."].concat(), &[]),
        "repeated states" => checkpoint(&repeated_state("NN", 1, 4_000_000), &[]),
        "plain keys" => checkpoint(&repeated_state("NN", 480, 2_000_000), &[]),
        // Each visit of a key looks for the end of its line.
        "long keys" => {
            let key = format!("V{}\np9\n0", "k".repeat(20_000_000));
            let states = repeated_state("h\tN", 120, 500_000);
            checkpoint(&[key.as_bytes(), &states].concat(), &[])
        }
        count => checkpoint_of(count.replace(',', "").parse().unwrap()),
    }
}

/// Parses each file in a separate process, whose peak memory the system records. It includes the test program and what
/// the parser keeps.
///
/// Without optimization, a file takes seconds, so every fourth is parsed, and all with `HF_META_SOAK=1`.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "the process of a file tells the test its peak")]
#[test]
fn hostile_files_take_less_than_64_mb() {
    const FILE: &str = "HF_META_TEST_HOSTILE_FILE";
    const TEST: &str = "formats::pytorch::tests::hostile_files_take_less_than_64_mb";

    if let Ok(path) = std::env::var(FILE) {
        let file = fs::File::open(path).unwrap();
        let size = file.metadata().unwrap().len();
        let parser = PyTorch.parser(&"model.bin".parse().unwrap(), 1 << 30);
        let started = std::time::Instant::now();
        let result = read_header(parser, Some(size), |range| {
            let length = range.end.min(size) - range.start;
            let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap());
            (&file).seek(SeekFrom::Start(range.start)).unwrap();
            (&file).take(length).read_to_end(&mut bytes).unwrap();
            Ok::<_, HeaderError>(bytes)
        });
        let seconds = started.elapsed().as_secs_f32();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let result = result.map_or_else(
            |error| error.to_string(),
            |header| format!("{} tensors", header.tensors().len()),
        );
        println!("peak {} in {seconds:.2} s: {result}", peak.trim().trim_end_matches(" kB"));
        return;
    }
    // The second file takes the most memory.
    let (first, step) = if std::env::var_os("HF_META_SOAK").is_some() { (0, 1) } else { (1, 4) };
    let mut failed = Vec::new();
    for (name, expected) in HOSTILE_FILES.into_iter().skip(first).step_by(step) {
        let path = std::env::temp_dir().join(format!("hf-meta-{}-{name}", std::process::id()));
        fs::write(&path, hostile_file(name)).unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args([TEST, "--exact", "--nocapture"]).env(FILE, &path).output();
        fs::remove_file(&path).unwrap();
        let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        let peak = text.lines().find_map(|line| line.strip_prefix("peak ")?.split_once(' '));
        let (peak, result) = peak.unwrap_or(("0", "it was terminated"));
        let is_small = (1..64_000).contains(&peak.parse::<u64>().unwrap());
        let line = format!("{name}: {peak} KiB {result}");
        println!("{line}");
        failed.extend((!is_small || !result.contains(expected)).then_some(line));
    }
    assert_eq!(failed, [""; 0]);
}
