//! Plans are compared with the `safetensors` crate: it writes the files, and reads the bytes of the tensors.

#![allow(clippy::cast_possible_truncation, reason = "the files are small")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use super::*;
use crate::SafetensorsFileHeader;
use crate::formats::pytorch::PyTorch;
use crate::formats::{
    Dtype, FileHeader, Format, HeaderError, RepoPath, TensorInfo, TensorTableBuilder, read_header,
};

/// The header and the bytes of a file.
type TestFile = (RepoPath, FileHeader, Vec<u8>);

/// Writes tensors with the `safetensors` crate. The bytes of each depend on its number.
fn write(name: &str, tensors: &[(&str, safetensors::Dtype, &[usize])]) -> TestFile {
    let data = tensors.iter().zip(1_u8..).map(|((_, dtype, shape), number)| {
        let bits = shape.iter().product::<usize>() * dtype.bitsize();
        (0..bits / 8).map(|at| (at as u8).wrapping_mul(7).wrapping_add(number)).collect::<Vec<_>>()
    });
    let data: Vec<_> = data.collect();
    let views = tensors.iter().zip(&data).map(|((name, dtype, shape), data)| {
        (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap())
    });
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    let bytes = safetensors::serialize(views, metadata).unwrap();
    let header = SafetensorsFileHeader::from_file_start(&bytes, Some(bytes.len() as u64)).unwrap();
    (RepoPath::new_unchecked(name), header.into(), bytes)
}

fn plan(
    files: &[TestFile],
    patterns: &[&str],
    options: &PlanOptions,
) -> Result<ReadPlan, PlanError> {
    let headers = files.iter().map(|(path, header, _)| (path.clone(), header));
    ReadPlan::new(headers, &TensorSelection::patterns(patterns.iter().copied()), options)
}

/// Reads the ranges of a plan from files, and returns the bytes of each tensor. Parts must arrive in order.
fn read(files: &[TestFile], plan: &ReadPlan) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new(); plan.tensors.len()];
    let mut last = 0;
    for range in &plan.ranges {
        let (_, _, bytes) = files.iter().find(|(path, ..)| *path == range.file.path).unwrap();
        let bytes = &bytes[range.start as usize..range.end as usize];
        for piece in plan.pieces(range) {
            assert!(piece.tensor >= last, "tensors arrive in order");
            last = piece.tensor;
            assert_eq!(found[last].len() as u64, piece.offset);
            found[last].extend_from_slice(&bytes[piece.bytes]);
        }
    }
    for (tensor, bytes) in plan.tensors.iter().zip(&found) {
        assert_eq!(tensor.byte_length(), bytes.len() as u64, "{}", tensor.name);
    }
    found
}

fn every_dtype() -> Vec<(&'static str, safetensors::Dtype, &'static [usize])> {
    use safetensors::Dtype::{
        BF16, BOOL, C64, F4, F6_E2M3, F6_E3M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2, F8_E5M2FNUZ, F8_E8M0,
        F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64,
    };
    let dtypes = [
        BOOL,
        F4,
        F6_E2M3,
        F6_E3M2,
        U8,
        I8,
        F8_E5M2,
        F8_E4M3,
        F8_E8M0,
        F8_E4M3FNUZ,
        F8_E5M2FNUZ,
        I16,
        U16,
        F16,
        BF16,
        I32,
        U32,
        F32,
        C64,
        F64,
        I64,
        U64,
    ];
    let names = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
        "s", "t", "u", "v",
    ];
    names.into_iter().zip(dtypes).map(|(name, dtype)| (name, dtype, &[3, 8][..])).collect()
}

#[test]
fn the_bytes_of_every_dtype_are_those_of_the_safetensors_crate() {
    let file = write("model.safetensors", &every_dtype());
    let reference = SafeTensors::deserialize(&file.2).unwrap();
    let files = [file.clone()];
    for (max_gap, max_range) in [(0, 5), (0, u64::MAX), (1 << 20, 64), (1 << 20, u64::MAX)] {
        let options = PlanOptions::default().max_gap(max_gap).max_range(max_range);
        for patterns in [&["*"][..], &["a", "m", "v"], &["?[1:3]"], &["c[2:]", "r[:1]", "b"]] {
            let plan = plan(&files, patterns, &options).unwrap();
            for (tensor, bytes) in plan.tensors.iter().zip(read(&files, &plan)) {
                let whole = reference.tensor(&tensor.name).unwrap();
                let row = whole.data().len() / 3;
                let rows = match (patterns, &*tensor.name) {
                    (["?[1:3]"], _) => 1..3,
                    (["c[2:]", ..], "c") => 2..3,
                    (["c[2:]", ..], "r") => 0..1,
                    _ => 0..3,
                };
                assert_eq!(
                    bytes,
                    whole.data()[rows.start * row..rows.end * row],
                    "{}",
                    tensor.name
                );
                assert_eq!(tensor.shape, [rows.len() as u64, 8]);
            }
        }
    }
}

#[test]
fn a_part_opens_in_the_safetensors_crate_with_aligned_data() {
    let files = [
        write("a.safetensors", &every_dtype()),
        write(
            "b.safetensors",
            &[("x", safetensors::Dtype::F64, &[2, 2]), ("y", safetensors::Dtype::U8, &[3, 1])],
        ),
    ];
    let options = PlanOptions::default().order(TensorOrder::Alignment).max_range(50);
    let plan = plan(&files, &["*"], &options).unwrap();
    let header = plan.safetensors_header().unwrap();
    let mut part = header.bytes;
    assert_eq!(part.len() % 8, 0);
    part.extend(read(&files, &plan).concat());
    let opened = SafeTensors::deserialize(&part).unwrap();
    let expected = files.each_ref().map(|(_, _, bytes)| SafeTensors::deserialize(bytes).unwrap());
    let mut compared = 0;
    for (name, tensor) in expected.iter().flat_map(SafeTensors::iter) {
        let found = opened.tensor(name).unwrap();
        assert_eq!(
            (found.dtype(), found.shape(), found.data()),
            (tensor.dtype(), tensor.shape(), tensor.data())
        );
        let start = found.data().as_ptr() as usize - part.as_ptr() as usize;
        let bits = tensor.dtype().bitsize();
        assert!(!bits.is_multiple_of(8) || start.is_multiple_of(bits / 8), "{name} is not aligned");
        compared += 1;
    }
    assert_eq!(compared, 24);
    // In the order of the files, no byte is read twice, and the positions are the same.
    let by_position = self::plan(&files, &["*"], &PlanOptions::default().max_range(50)).unwrap();
    assert_eq!(by_position.bytes_to_read(), by_position.tensor_bytes());
    let header = by_position.safetensors_header().unwrap();
    for (start, (tensor, bytes)) in
        header.starts.iter().zip(by_position.tensors.iter().zip(read(&files, &by_position)))
    {
        let start = usize::try_from(*start).unwrap();
        assert_eq!(part[start..start + bytes.len()], bytes, "{}", tensor.name);
    }
    assert_eq!(part[..header.bytes.len()], header.bytes);
    let (_, metadata) = SafeTensors::read_metadata(&part).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
}

/// Returns the header of a file with `U8` tensors of these lengths.
fn bytes_file(name: &str, lengths: &[(&str, u64)]) -> TestFile {
    let (mut builder, mut at) = (TensorTableBuilder::new(), 0);
    for (name, length) in lengths {
        builder.push(name, &TensorInfo::new(Dtype::U8, vec![*length], (at, at + length)));
        at += length;
    }
    (RepoPath::new_unchecked(name), FileHeader::new(builder.finish().unwrap(), 0..100), Vec::new())
}

fn spans(plan: &ReadPlan) -> Vec<(&str, u64, u64)> {
    plan.ranges.iter().map(|range| (range.file.path.as_str(), range.start, range.end)).collect()
}

#[test]
fn neighbors_are_joined_up_to_the_gap_and_long_ranges_are_split_evenly() {
    let files = [
        bytes_file("a", &[("x", 10), ("gap", 5), ("y", 10), ("empty", 0), ("z", 30)]),
        bytes_file("b", &[("w", 7)]),
    ];
    let spans_of = |max_gap, max_range| {
        let options = PlanOptions::default().max_gap(max_gap).max_range(max_range);
        let plan = plan(&files, &["x", "y", "empty", "z", "w"], &options).unwrap();
        spans(&plan)
            .into_iter()
            .map(|(file, start, end)| format!("{file} {start}-{end}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(spans_of(5, 1_000), ["a 100-155", "b 100-107"]);
    assert_eq!(spans_of(4, 1_000), ["a 100-110", "a 115-155", "b 100-107"]);
    assert_eq!(spans_of(5, 30), ["a 100-128", "a 128-155", "b 100-107"]);
    // A gap never fills a range.
    assert_eq!(
        spans_of(1_000, 8),
        [
            "a 100-105",
            "a 105-110",
            "a 115-123",
            "a 123-131",
            "a 131-139",
            "a 139-147",
            "a 147-155",
            "b 100-107"
        ]
    );
    let json =
        serde_json::to_value(plan(&files, &["x", "y"], &PlanOptions::default()).unwrap()).unwrap();
    assert_eq!(
        json["ranges"],
        serde_json::json!([{ "file": "a", "start": 100, "end": 125, "tensors": ["x", "y"] }])
    );
    assert_eq!((json["tensorBytes"].as_u64(), json["bytesToRead"].as_u64()), (Some(20), Some(25)));
}

#[test]
fn unusable_selections_are_rejected_with_the_reason() {
    let table = [
        ("w", Dtype::BF16, vec![4, 6]),
        ("s", Dtype::F32, vec![]),
        ("f4", Dtype::F4, vec![2, 3]),
        ("a[0]", Dtype::U8, vec![1]),
    ];
    let (mut builder, mut at) = (TensorTableBuilder::new(), 0);
    for (name, dtype, shape) in table {
        let mut tensor = TensorInfo::new(dtype, shape, (0, 0));
        let end = at + tensor.dtype.byte_length(tensor.elements().unwrap()).unwrap();
        tensor.data_offsets = (at, end);
        builder.push(name, &tensor);
        at = end;
    }
    let file = (
        RepoPath::new_unchecked("m"),
        FileHeader::new(builder.finish().unwrap(), 0..10),
        Vec::new(),
    );
    let error = |patterns: &[&str]| {
        plan(std::slice::from_ref(&file), patterns, &PlanOptions::default())
            .unwrap_err()
            .to_string()
    };
    let cases = [
        (&["x"][..], "no tensor matches `x`"),
        (&["4"], "no tensor matches `4`; `*4*` matches a part of a name"),
        (&["w", "x*"], "no tensor matches `x*`"),
        (&["w[0:2,1]"], "only the first dimension"),
        (&["w[1]"], "`[5:6]` reads row 5"),
        (&["w[::2]"], "a slice with a step"),
        (&["w[-1:]"], "must be whole numbers"),
        (&["w[2:2]"], "its end must be after its start"),
        (&["w[0:99999999999999999999]"], "must be whole numbers"),
        (&["w[0:5]"], "tensor `w` has 4 rows, not `[0:5]`"),
        (&["w[4:]"], "tensor `w` has 4 rows"),
        (&["s[0:1]"], "tensor `s` is a scalar"),
        (&["f4[0:1]"], "rows without a whole number of bytes"),
        (&["w[0:1]", "w[1:2]"], "two patterns"),
        (&["w", "w*[0:1]"], "two patterns"),
        (&[], "contains no tensors"),
    ];
    for (patterns, message) in cases {
        let error = error(patterns);
        assert!(error.contains(message), "{patterns:?}: {error}");
    }
    // A name may look like a slice, and one tensor may match several patterns.
    for patterns in [&["a[0]"][..], &["w", "w", "*"], &["w[0:4]", "w[:4]"]] {
        assert!(
            plan(std::slice::from_ref(&file), patterns, &PlanOptions::default()).is_ok(),
            "{patterns:?}"
        );
    }
}

#[test]
fn hostile_headers_cannot_make_a_plan_large() {
    let huge = bytes_file("m", &[("w", u64::MAX / 16)]);
    let found = plan(std::slice::from_ref(&huge), &["w"], &PlanOptions::default());
    assert_eq!(found, Err(PlanError::TooMany { limit: 1 << 21, items: "ranges" }));
    // The header of a custom format may claim any range.
    let header = FileHeader::new(huge.1.tensors().clone(), 0..u64::MAX - 10);
    let past = (huge.0, header, Vec::new());
    let found = plan(&[past], &["w"], &PlanOptions::default());
    assert_eq!(found, Err(PlanError::OutsideFile { tensor: "w".to_owned() }));
    let one = bytes_file("a", &[("w", 1)]);
    let two = bytes_file("b", &[("w", 1)]);
    assert!(matches!(
        plan(&[one, two], &["w"], &PlanOptions::default()),
        Err(PlanError::Duplicate { .. })
    ));
    let globs: Vec<_> = (0..2_000).map(|number| format!("{number}*")).collect();
    let globs: Vec<_> = globs.iter().map(String::as_str).collect();
    assert!(matches!(plan(&[], &globs, &PlanOptions::default()), Err(PlanError::TooMany { .. })));
}

#[test]
fn files_without_ranges_are_rejected() {
    let (path, mut header, _) = bytes_file("m.gguf", &[("w", 4)]);
    header.is_big_endian = true;
    let files = [(path, header, Vec::new())];
    let error = plan(&files, &["w"], &PlanOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensors of `m.gguf` cannot be read by range: its values are big-endian"
    );
    let (path, mut header, _) = bytes_file("m.bin", &[("w", 4)]);
    header.pickle = Some(Box::default());
    let files = [(path, header, Vec::new())];
    let error = plan(&files, &["w"], &PlanOptions::default()).unwrap_err();
    assert!(error.to_string().contains("its elements are not in their order"), "{error}");
    let mut builder = TensorTableBuilder::new();
    builder.push("w", &TensorInfo::new(Dtype::Q4_0, vec![2, 32], (0, 36)));
    let file = (
        RepoPath::new_unchecked("q.gguf"),
        FileHeader::new(builder.finish().unwrap(), 0..64),
        Vec::new(),
    );
    let plan = plan(&[file], &["w[1:2]"], &PlanOptions::default()).unwrap();
    assert_eq!(spans(&plan), [("q.gguf", 82, 100)]);
    assert!(matches!(plan.safetensors_header(), Err(PlanError::NotSafetensors { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn ranges_contain_exactly_the_selected_tensors(
        lengths in vec(vec(0_u64..40, 1..8), 1..4),
        selected in vec(any::<bool>(), 32),
        max_gap in 0_u64..20,
        max_range in 1_u64..60,
        by_alignment in any::<bool>(),
    ) {
        let dtypes = [safetensors::Dtype::U8, safetensors::Dtype::BF16, safetensors::Dtype::F64];
        let mut number = 0;
        let mut files = Vec::new();
        let mut expected = BTreeMap::new();
        for (file, lengths) in lengths.iter().enumerate() {
            let names: Vec<_> = lengths.iter().map(|_| { number += 1; format!("t{number}") }).collect();
            let shapes: Vec<_> = lengths.iter().map(|length| [*length as usize]).collect();
            let tensors: Vec<_> = names.iter().zip(&shapes).enumerate()
                .map(|(at, (name, shape))| (&**name, dtypes[at % 3], &shape[..])).collect();
            let file = write(&format!("f{file}"), &tensors);
            for (name, view) in SafeTensors::deserialize(&file.2).unwrap().iter() {
                expected.insert(name.to_owned(), view.data().to_vec());
            }
            files.push(file);
        }
        let is_selected = selected.clone();
        let selection = TensorSelection::matching(move |name, _| {
            name[1..].parse::<usize>().is_ok_and(|number| is_selected[number % 32])
        });
        let order = if by_alignment { TensorOrder::Alignment } else { TensorOrder::Position };
        let options = PlanOptions::default().max_gap(max_gap).max_range(max_range).order(order);
        let headers = files.iter().map(|(path, header, _)| (path.clone(), header));
        let Ok(plan) = ReadPlan::new(headers, &selection, &options) else {
            prop_assert!((1..=number).all(|number| !selected[number % 32]));
            return Ok(());
        };
        for range in &plan.ranges {
            prop_assert!(range.byte_length() <= max_range && plan.pieces(range).next().is_some());
        }
        for (tensor, bytes) in plan.tensors.iter().zip(read(&files, &plan)) {
            prop_assert_eq!(Some(bytes), expected.remove(&*tensor.name));
        }
        prop_assert!(expected.keys().all(|name| !selected[name[1..].parse::<usize>().unwrap() % 32]));
    }
}

/// The tensors of PyTorch files, in archives and without.
#[test]
fn tensors_of_pytorch_files_are_ranges() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch");
    let read = |name: &str, pattern: &str| {
        let file = fs::read(folder.join(name)).unwrap();
        let path: RepoPath = "model.bin".parse().unwrap();
        let at = |at: u64| usize::try_from(at).unwrap().min(file.len());
        let size = Some(file.len() as u64);
        let parser = PyTorch.parser(&path, 1 << 30);
        let header = read_header(parser, size, |range| {
            Ok::<_, HeaderError>(file[at(range.start)..at(range.end)].to_vec())
        });
        let header = header.unwrap();
        let files = || [(path.clone(), &header)];
        let selection = TensorSelection::patterns([pattern]);
        let slice = |start: u64, end: u64| file[at(start)..at(end)].to_vec();
        let needed = ReadPlan::local_headers(files(), &selection).unwrap();
        let needed = needed.into_iter().map(|header| {
            let bytes = slice(header.range.start, header.range.end);
            (header, bytes)
        });
        let options = PlanOptions::default().storage_starts(StorageStarts::new(needed)?);
        let plan = ReadPlan::new(files(), &selection, &options)?;
        Ok::<_, PlanError>(
            plan.tensors
                .iter()
                .map(|tensor| (tensor.name.to_string(), slice(tensor.start, tensor.end)))
                .collect::<Vec<_>>(),
        )
    };
    // The first bytes that `torch.load` finds.
    for (file, pattern, length, start) in [
        ("tied.bin", "wte.weight", 96, [186, 70, 195, 191]),
        ("tied.bin", "wte.weight[2:3]", 16, [42, 215, 224, 62]),
        ("tied.bin", "h.weight", 16, [187, 76, 210, 62]),
        ("slices.bin", "k", 32, [42, 215, 224, 62]),
        ("slices.bin", "v", 32, [141, 102, 76, 191]),
        ("expanded.bin", "w", 64, [12, 234, 240, 191]),
        ("legacy-tied.bin", "h.weight", 16, [90, 18, 103, 191]),
        ("legacy-slices.bin", "q", 32, [231, 186, 209, 62]),
        ("legacy-slices.bin", "v", 32, [215, 43, 164, 189]),
        ("dtype-int16.bin", "w", 12, [0; 4]),
        ("transposed.bin", "again", 64, [12, 234, 240, 191]),
        ("computed.bin", "w", 64, [12, 234, 240, 191]),
    ] {
        let found = read(file, pattern).unwrap();
        assert_eq!(found.len(), 1, "{file} {pattern}");
        assert_eq!((found[0].1.len(), &found[0].1[..4]), (length, &start[..]), "{file} {pattern}");
    }
    for (file, pattern, message) in [
        (
            "columns.bin",
            "even",
            "tensor `even` of `model.bin` cannot be read by range: its elements are not in their order, negated or conjugated, or it shares some with another tensor",
        ),
        (
            "expanded.bin",
            "e",
            "tensor `e` of `model.bin` cannot be read by range: its elements are not in their order, negated or conjugated, or it shares some with another tensor",
        ),
        (
            "computed.bin",
            "conjugated",
            "tensor `conjugated` of `model.bin` cannot be read by range: its elements are not in their order, negated or conjugated, or it shares some with another tensor",
        ),
        (
            "computed.bin",
            "negated",
            "tensor `negated` of `model.bin` cannot be read by range: its elements are not in their order, negated or conjugated, or it shares some with another tensor",
        ),
        (
            "tied.bin",
            "lm_head.weight",
            "no tensor matches `lm_head.weight`; its elements are stored as `wte.weight`",
        ),
    ] {
        assert_eq!(read(file, pattern).unwrap_err().to_string(), message);
    }
}

/// A local header states where the data begin, and that they are not compressed.
#[test]
fn local_headers_are_checked() {
    let file =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch/tied.bin"));
    let (file, path): (_, RepoPath) = (file.unwrap(), "model.bin".parse().unwrap());
    let at = |at: u64| usize::try_from(at).unwrap().min(file.len());
    let header = read_header(PyTorch.parser(&path, 1 << 30), Some(file.len() as u64), |range| {
        Ok::<_, HeaderError>(file[at(range.start)..at(range.end)].to_vec())
    });
    let header = header.unwrap();
    let needed =
        ReadPlan::local_headers([(path.clone(), &header)], &TensorSelection::all()).unwrap();
    assert_eq!(needed.len(), 2);
    let first = &needed[0];
    let right = file[at(first.range.start)..at(first.range.end)].to_vec();
    let changed = |position: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[position] = byte;
        bytes
    };
    assert!(StorageStarts::new([(first.clone(), right.clone())]).is_ok());
    // The signature, the method, a length beyond the end of the file, and a short one.
    for bytes in [changed(0, b'x'), changed(8, 8), changed(29, 255), right[..29].to_vec()] {
        let error = StorageStarts::new([(first.clone(), bytes)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tensors of `model.bin` cannot be read by range: the ZIP archive states no data where a storage begins"
        );
    }
    // Without the headers, nothing is planned.
    let plan = ReadPlan::new([(path, &header)], &TensorSelection::all(), &PlanOptions::default());
    assert!(plan.unwrap_err().to_string().contains("only the headers inside of the archive"));
}
