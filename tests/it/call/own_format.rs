//! A format that is not part of the library, through its public interface.

use std::ops::Range;
use std::path::Path;

use hf_meta::{Client, Dtype, MemoryCache, Model, RepoPath, Tree, Weights};
use hf_meta_format::formats::safetensors::Safetensors;
use hf_meta_format::formats::{Format, Formats, HeaderError, HeaderParser, Step};
use hf_meta_testing::conformance;

use crate::hub::{File, LocalHub, Repo};
use crate::support;

#[path = "../../../examples/tensorsafe.rs"]
#[expect(dead_code, reason = "the program of the example is not run here")]
mod tensorsafe;

use self::tensorsafe::{Tensorsafe, write};

fn file(names: [&str; 2]) -> Vec<u8> {
    let mut file = Vec::new();
    write(&mut file, &[(names[0], &[1; 800]), (names[1], &[2; 800])]).unwrap();
    file
}

fn client(hub: &LocalHub) -> Client {
    Client::builder().endpoint(hub.endpoint()).format(Tensorsafe).build().unwrap()
}

async fn check(model: &Model) {
    let weights = model.inspect().await.unwrap();
    let Weights::Other(files) = &weights else { panic!("{weights:?}") };
    assert_eq!((files.report.format, files.report.parameter_count.total()), ("tensorsafe", 1_600));
    assert_eq!(files.report.parameter_count.get(&Dtype::U8), 1_600);
    assert_eq!(Tree::new(&weights).modules[0].name, "h.[0-1].w");
    let report = model.verify().await.unwrap();
    assert!(
        report.is_valid() && report.parameters().counted == Some(1_600),
        "{:?}",
        report.findings()
    );
    assert_eq!(model.count().await.unwrap().parameter_count, files.report.parameter_count);
}

#[test]
fn the_formats_conform() {
    let own = file(["h.0.w", "h.1.w"]);
    conformance::check_format(&Tensorsafe, &"x.tensorsafe".parse().unwrap(), &own).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let complete = ["pytorch/tied.bin", "pytorch/ema.pt"].map(|name| (name, 0));
    // The fixtures of GGUF have no data.
    for (name, min_size) in complete.into_iter().chain([("gguf/type-F32.gguf", 2_856)]) {
        let path: RepoPath = name.parse().unwrap();
        let mut file = std::fs::read(fixtures.join(name)).unwrap();
        file.resize(file.len().max(min_size), 0);
        let format = Formats::built_in().find_or_safetensors(&path);
        conformance::check_format(format, &path, &file)
            .unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

#[tokio::test]
async fn a_header_at_the_end_of_a_file_is_read_in_three_ranges() {
    let bytes = file(["h.0.w", "h.1.w"]);
    let repo = Repo::new("org/own").file("model.tensorsafe", File::from_bytes(bytes.clone()));
    let hub = LocalHub::start([repo]).unwrap();
    let own = client(&hub).model("org/own").path("model.tensorsafe");
    check(&own).await;
    hub.clear_log();
    own.count().await.unwrap();
    let size = bytes.len();
    let length = size - 1_616;
    let ranges: Vec<_> =
        hub.log().iter().filter_map(|entry| Some((entry.status, entry.range.clone()?))).collect();
    let ranges: Vec<_> =
        ranges.into_iter().filter(|(status, _)| *status == 206).map(|(_, range)| range).collect();
    let expected = [
        "bytes=0-7".to_owned(),
        format!("bytes={}-{}", size - 8, size - 1),
        format!("bytes=1608-{}", 1_607 + length),
    ];
    assert_eq!(ranges, expected);
    check(&client(&hub).model("org/own")).await;
    check(&client(&hub).model("org/own").format("tensorsafe")).await;
}

/// A format whose parser requests the same range forever.
#[derive(Clone, Copy, Debug)]
struct Endless {
    name: &'static str,
    extension: &'static str,
    next: (u64, u64),
}

impl Format for Endless {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extension(&self) -> &'static str {
        self.extension
    }

    fn parser(&self, _: &RepoPath, _: u64) -> Box<dyn HeaderParser> {
        Box::new(*self)
    }
}

impl HeaderParser for Endless {
    fn first_range(&self) -> Range<u64> {
        0..8
    }

    fn advance(&mut self, _: u64, _: Vec<u8>, _: Option<u64>) -> Result<Step, HeaderError> {
        Ok(Step::Read(self.next.0..self.next.1))
    }
}

const ENDLESS: Endless = Endless { name: "endless", extension: ".endless", next: (8, 16) };

#[tokio::test]
async fn a_parser_that_makes_no_progress_is_stopped() {
    let repo = Repo::new("org/own").file("model.endless", File::from_bytes(vec![0; 100]));
    let hub = LocalHub::start([repo]).unwrap();
    for next in [(8, 16), (0, 8), (0, 0), (8, 8), (9, 8), (200, 300)] {
        let client = Client::builder().endpoint(hub.endpoint()).format(Endless { next, ..ENDLESS });
        let client = client.build().unwrap();
        hub.clear_log();
        let error = client.model("org/own").path("model.endless").count().await.unwrap_err();
        assert!(error.is_malformed(), "{next:?}: {error:?}");
        let ranges = hub.log().iter().filter(|entry| entry.range.is_some()).count();
        assert!(ranges <= 4, "{next:?}: {ranges} requests, with redirects");
    }
}

#[test]
fn formats_with_the_same_name_or_extension_are_build_errors() {
    for format in [
        ENDLESS,
        Endless { name: "gguf", extension: ".other", ..ENDLESS },
        Endless { name: "other", extension: ".safetensors", ..ENDLESS },
    ] {
        let error = Client::builder().format(ENDLESS).format(format).build().unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("`format`"), "{error}");
    }
    let other = Endless { name: "other", extension: ".other", ..ENDLESS };
    assert!(Client::builder().format(ENDLESS).format(other).build().is_ok());
}

/// The header of a GGUF file of 2,856 bytes.
const GGUF: &[u8] = include_bytes!("../../../fixtures/gguf/type-F32.gguf");

/// The layout of safetensors under another name.
#[derive(Debug)]
struct Renamed;

impl Format for Renamed {
    fn name(&self) -> &'static str {
        "renamed"
    }

    fn extension(&self) -> &'static str {
        ".renamed"
    }

    fn parser(&self, path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        Safetensors.parser(path, max_header_bytes)
    }
}

/// The entry of one format must not evict the entry of another one.
#[tokio::test]
async fn each_format_has_its_own_cache_entry() {
    let repo = Repo::new("org/own")
        .file("model.renamed", support::weights(&["x"]))
        .file("model.gguf", File::padded(GGUF.to_vec(), 2_856));
    let hub = LocalHub::start([repo]).unwrap();
    let builder = Client::builder().endpoint(hub.endpoint()).format(Renamed);
    let client = builder.header_cache(MemoryCache::new(1 << 20)).build().unwrap();
    let read = async |format| {
        let report = client.model("org/own").format(format).count().await.unwrap();
        (report.format, report.fetch.requests)
    };
    for format in ["renamed", "gguf"] {
        assert!(read(format).await.1 > 1);
    }
    for format in ["renamed", "gguf"] {
        assert_eq!(read(format).await, (format, 1));
    }
}

#[tokio::test]
async fn a_local_file_in_a_custom_format_is_read() {
    let hub = LocalHub::start([]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tensorsafe");
    std::fs::write(&path, file(["h.0.w", "h.1.w"])).unwrap();
    check(&client(&hub).source(hf_meta::Source::Local(path.clone()))).await;
    let mut cut = file(["h.0.w", "h.1.w"]);
    cut.truncate(900);
    std::fs::write(&path, cut).unwrap();
    let error = client(&hub).source(hf_meta::Source::Local(path)).count().await.unwrap_err();
    assert!(error.is_malformed(), "{error:?}");
}
