//! The data of selected tensors: from the Hub, web servers and disks, in the library and by `hf-meta get`.

mod command;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind as ErrorKindOfIo;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use hf_meta::{Client, Error, ErrorKind, MemoryCache, Model, Source, Tensor, TensorSelection};
use hf_meta_format::read_plan::PlannedTensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::hub::{ContentRangeFault, Fault, File, Host, LocalHub, LoggedRequest, Repo};
use crate::support::{self, client, error_chain};

/// Writes a file with the `safetensors` crate. The bytes of each tensor depend on its number.
pub(crate) fn write_file(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let data = tensors.iter().zip(1_u8..).map(|((_, dtype, shape), number)| {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        (0..bytes).map(|at| u8::try_from(at % 251).unwrap() ^ number).collect::<Vec<_>>()
    });
    let data: Vec<_> = data.collect();
    let views = tensors.iter().zip(&data).map(|((name, dtype, shape), data)| {
        (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap())
    });
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    safetensors::serialize(views, metadata).unwrap()
}

/// Writes a file with a tensor of every dtype.
pub(crate) fn every_dtype() -> Vec<u8> {
    use Dtype::{
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
    let names = dtypes.map(|dtype| format!("w.{dtype:?}"));
    let tensors: Vec<_> =
        names.iter().zip(dtypes).map(|(name, dtype)| (&**name, dtype, &[5, 8][..])).collect();
    write_file(&tensors)
}

async fn read(model: &Model, patterns: &[&str]) -> Result<Vec<Tensor>, Error> {
    let selection = TensorSelection::patterns(patterns.iter().copied());
    model.tensors(selection).await?.tensors().try_collect().await
}

/// Compares tensors with the files that contain them.
fn assert_same(found: &[Tensor], files: &[&[u8]], count: usize) {
    let mut expected = BTreeMap::new();
    let files: Vec<_> = files.iter().map(|file| SafeTensors::deserialize(file).unwrap()).collect();
    for (name, tensor) in files.iter().flat_map(SafeTensors::iter) {
        expected.insert(name.to_owned(), tensor);
    }
    assert_eq!(found.len(), count);
    for tensor in found {
        let expected = &expected[&tensor.name];
        let shape: Vec<_> = expected.shape().iter().map(|length| *length as u64).collect();
        assert_eq!((&*tensor.bytes, &tensor.shape), (expected.data(), &shape), "{}", tensor.name);
        assert_eq!(tensor.dtype.as_str(), format!("{:?}", expected.dtype()), "{}", tensor.name);
    }
}

#[tokio::test]
async fn every_dtype_has_the_bytes_of_the_safetensors_crate_from_every_source() {
    let (file, folder) = (every_dtype(), tempfile::tempdir().unwrap());
    let repo = Repo::new("org/model").file("model.safetensors", File::from_bytes(file.clone()));
    let hub = LocalHub::start([repo]).unwrap();
    let client = client(&hub);
    fs::write(folder.path().join("model.safetensors"), &file).unwrap();
    let url = format!("{}/org/model/resolve/main/model.safetensors", hub.endpoint());
    let models = [
        client.model("org/model"),
        client.source(Source::Url(url.parse().unwrap())),
        client.source(Source::Local(folder.path().to_owned())),
    ];
    for model in models {
        assert_same(&read(&model, &["*"]).await.unwrap(), &[&file], 22);
        assert_same(&read(&model, &["w.F?", "w.BF16"]).await.unwrap(), &[&file], 2);
        let rows = read(&model, &["w.F32[1:4]"]).await.unwrap();
        let whole = SafeTensors::deserialize(&file).unwrap();
        let whole = whole.tensor("w.F32").unwrap().data();
        assert_eq!((&*rows[0].bytes, &*rows[0].shape), (&whole[32..128], &[3, 8][..]));
    }
}

/// Two shards with an index. The second one has a tensor that spans many small ranges.
fn sharded() -> (Repo, Vec<u8>, Vec<u8>) {
    let first = write_file(&[("a", Dtype::F32, &[100, 10]), ("b", Dtype::U8, &[7])]);
    let second = write_file(&[("large", Dtype::BF16, &[1_000, 1_000]), ("c", Dtype::I8, &[0, 4])]);
    let index = [
        ("a", "1.safetensors"),
        ("b", "1.safetensors"),
        ("large", "2.safetensors"),
        ("c", "2.safetensors"),
    ];
    let repo = Repo::new("org/model")
        .file("model.safetensors.index.json", support::index(&index))
        .file("1.safetensors", File::from_bytes(first.clone()))
        .file("2.safetensors", File::from_bytes(second.clone()));
    (repo, first, second)
}

#[tokio::test]
async fn a_tensor_that_is_larger_than_the_memory_arrives_in_parts() {
    let (repo, first, second) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let model = client(&hub).model("org/model");
    let reads = model.tensors(TensorSelection::all()).max_memory(0);
    let found: Vec<_> = reads.clone().await.unwrap().tensors().try_collect().await.unwrap();
    assert_same(&found, &[&first, &second], 4);
    let reader = reads.await.unwrap();
    let plan = reader.plan().clone();
    assert_eq!(
        plan.tensors.iter().map(|tensor| &*tensor.name).collect::<Vec<_>>(),
        ["a", "b", "large", "c"]
    );
    assert!(
        plan.ranges.len() > 30
            && plan.ranges.iter().all(|range| range.end - range.start <= 64 << 10)
    );
    let chunks: Vec<_> = reader.chunks().try_collect().await.unwrap();
    let mut ends = vec![0; plan.tensors.len()];
    for chunk in chunks {
        assert_eq!(chunk.offset, ends[chunk.tensor]);
        ends[chunk.tensor] += chunk.bytes.len() as u64;
    }
    assert_eq!(
        ends,
        plan.tensors.iter().map(|tensor| tensor.end - tensor.start).collect::<Vec<_>>()
    );
}

/// Parts arrive in any order, and again after a failed attempt, from servers and from a disk.
#[tokio::test]
async fn parts_are_passed_on_as_they_arrive() {
    let (repo, first, second) = sharded();
    let (hub, folder) = (LocalHub::start([repo]).unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("model.safetensors");
    fs::write(&path, &second).unwrap();
    let url = format!("{}/org/model/resolve/main/2.safetensors", hub.endpoint());
    let policy = hf_meta::RetryPolicy::default().max_attempts(3).initial_delay(Duration::ZERO);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(policy).build().unwrap();
    let sources = [
        (client.model("org/model"), 4),
        (client.source(Source::Url(url.parse().unwrap())), 2),
        (client.source(Source::Local(path)), 2),
    ];
    hub.inject(|request, earlier| {
        let is_first = request.host == Host::Cdn && earlier == 0;
        is_first.then_some(Fault::ResetInBody { after: 1_000 })
    });
    for (model, count) in sources {
        for memory in [0, 1 << 30] {
            let reader = model.tensors(TensorSelection::all()).max_memory(memory).await.unwrap();
            let planned = reader.plan().tensors.clone();
            let length = |tensor: &PlannedTensor| usize::try_from(tensor.byte_length()).unwrap();
            let data = planned.iter().map(|tensor| vec![0; length(tensor)]);
            let data = Arc::new(Mutex::new(data.collect::<Vec<_>>()));
            let filled = Arc::clone(&data);
            let receive = move |tensor: usize, offset: u64, bytes: &[u8]| {
                let at = usize::try_from(offset).unwrap();
                filled.lock().unwrap()[tensor][at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            reader.clone().for_each_part(receive).await.unwrap();
            let whole: Vec<_> = reader.clone().tensors().try_collect().await.unwrap();
            let bytes: Vec<_> = whole.iter().map(|tensor| tensor.bytes.to_vec()).collect();
            assert_eq!(*data.lock().unwrap(), bytes);
            assert_same(&whole, &[&first, &second], count);
            let full = |_: usize, _: u64, _: &[u8]| Err(ErrorKindOfIo::StorageFull.into());
            let error = reader.for_each_part(full).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LocalIo, "{}", error_chain(&error));
        }
    }
}

/// A server that sends other bytes than the range, or less.
#[tokio::test]
async fn parts_of_a_wrong_response_end_the_read() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let policy = hf_meta::RetryPolicy::default().max_attempts(2).initial_delay(Duration::ZERO);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(policy).build().unwrap();
    let model = client.model("org/model");
    for fault in [
        Fault::Truncated { length: 100 },
        Fault::WrongContentRange(ContentRangeFault::Shifted),
        Fault::Gzip,
        Fault::Clamped { length: 100 },
    ] {
        let name = format!("{fault:?}");
        hub.inject(|_, _| None);
        let reader = model.tensors(TensorSelection::all()).await.unwrap();
        hub.inject(move |request, _| (request.host == Host::Cdn).then(|| fault.clone()));
        let error = reader.for_each_part(|_, _, _| Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network, "{name}: {}", error_chain(&error));
    }
}

#[tokio::test]
async fn only_the_ranges_of_the_plan_are_requested() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let model = client(&hub).model("org/model");
    let plan =
        model.tensors(TensorSelection::patterns(["b", "large[10:20]"])).read_plan().await.unwrap();
    hub.clear_log();
    read(&model, &["b", "large[10:20]"]).await.unwrap();
    let log = hub.log();
    let ranges = log
        .iter()
        .filter(|request| request.host == Host::Cdn)
        .filter_map(|request| request.range.clone());
    let mut ranges: Vec<_> = ranges.collect();
    // One range of each header comes first.
    let mut expected: Vec<_> = plan
        .ranges
        .iter()
        .map(|range| format!("bytes={}-{}", range.start, range.end - 1))
        .collect();
    let headers = ranges.len() - expected.len();
    assert_eq!((expected.len(), headers), (2, 2));
    ranges.drain(..headers);
    ranges.sort();
    expected.sort();
    assert_eq!(ranges, expected);
}

/// Three shards, of which the index lacks a tensor, and may name the wrong shard of another.
fn three_shards(name: &str, shard_of_e: &str) -> (Repo, [Vec<u8>; 3]) {
    let (_, first, second) = sharded();
    let tensors = ["d", "e", "f"].map(|name| (name, Dtype::F32, &[4][..]));
    let third = write_file(&tensors);
    let index = [("a", "1"), ("b", "1"), ("large", "2"), ("c", "2"), ("e", shard_of_e), ("f", "3")];
    let index = index.map(|(tensor, shard)| (tensor, format!("{shard}.safetensors")));
    let index: Vec<_> = index.iter().map(|(tensor, shard)| (*tensor, &**shard)).collect();
    let repo = Repo::new(name)
        .file("model.safetensors.index.json", support::index(&index))
        .file("1.safetensors", File::from_bytes(first.clone()))
        .file("2.safetensors", File::from_bytes(second.clone()))
        .file("3.safetensors", File::from_bytes(third.clone()));
    (repo, [first, second, third])
}

/// Returns the shards that were requested.
fn read_shards(hub: &LocalHub) -> String {
    let log = hub.log();
    let shard = |name: &str| name.strip_suffix(".safetensors").map(str::to_owned);
    let names = log.iter().filter_map(|request| shard(request.path.rsplit('/').next()?));
    let names: BTreeSet<_> = names.filter(|name| name.len() == 1).collect();
    names.into_iter().collect()
}

/// Only the headers of the shards with selected tensors are read.
#[tokio::test]
async fn headers_of_other_shards_are_not_read() {
    let (right, files) = three_shards("org/model", "3");
    let (wrong, _) = three_shards("org/wrong", "1");
    let hub = LocalHub::start([right, wrong]).unwrap();
    let cached = || {
        let client = Client::builder().endpoint(hub.endpoint());
        client.header_cache(MemoryCache::new(1 << 20)).build().unwrap()
    };
    for (name, patterns, count, shards) in [
        ("org/model", &["b"][..], 1, "1"),
        ("org/model", &["large", "c"], 2, "2"),
        ("org/model", &["a", "l*"], 2, "12"),
        ("org/model", &["?"], 6, "123"),
        // The index lacks it.
        ("org/model", &["d"], 1, "123"),
        ("org/wrong", &["e"], 1, "123"),
        ("org/wrong", &["f"], 1, "3"),
    ] {
        for client in [client(&hub), cached()] {
            let model = client.model(name);
            hub.clear_log();
            let found = read(&model, patterns).await.unwrap();
            assert_eq!(read_shards(&hub), shards, "{patterns:?}");
            // Parts are not counted, so they need no configuration.
            let is_config = |request: &LoggedRequest| request.path.ends_with("config.json");
            assert!(shards.len() == 3 || !hub.log().iter().any(is_config), "{patterns:?}");
            assert_same(&found, &files.each_ref().map(|file| &**file), count);
            // A part of a model is not in the cache.
            assert_eq!(model.inspect().await.unwrap().files().count(), 3);
        }
    }
    let model = client(&hub).model("org/model");
    hub.clear_log();
    let all = TensorSelection::matching(|name, _| name == "b");
    assert_eq!(model.tensors(all).read_plan().await.unwrap().tensors.len(), 1);
    assert_eq!(read_shards(&hub), "123", "a function sees all tensors");
}

/// A branch that moves after the headers were read does not change the data.
#[tokio::test]
async fn data_are_read_at_the_commit_of_the_headers() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let files = [7, 9].map(|rows| write_file(&[("w", Dtype::F32, &[rows, 64])]));
    let repo = Repo::new("org/model")
        .commit(&new)
        .file("model.safetensors", File::from_bytes(files[1].clone()))
        .commit(&old)
        .file("model.safetensors", File::from_bytes(files[0].clone()));
    let hub = LocalHub::start([repo]).unwrap();
    let reader = client(&hub).model("org/model").tensors(TensorSelection::all()).await.unwrap();
    assert_eq!(reader.commit().map(ToString::to_string), Some(old));
    hub.move_branch("org/model", "main", &new);
    let found: Vec<_> = reader.tensors().try_collect().await.unwrap();
    assert_same(&found, &[&files[0]], 1);
}

#[tokio::test]
async fn ranges_are_retried_and_never_accepted_with_other_bytes() {
    let (repo, first, second) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let policy = hf_meta::RetryPolicy::default().max_attempts(3).initial_delay(Duration::ZERO);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(policy).build().unwrap();
    let model = client.model("org/model");
    for fault in [
        Fault::ResetInBody { after: 1_000 },
        Fault::Truncated { length: 100 },
        Fault::Status(503, vec![]),
        Fault::ConnectionReset,
    ] {
        let name = format!("{fault:?}");
        hub.inject(move |request, earlier| {
            (request.host == Host::Cdn && earlier == 0).then(|| fault.clone())
        });
        let found = read(&model, &["*"]).await;
        assert_same(
            &found.unwrap_or_else(|error| panic!("{name}: {error}")),
            &[&first, &second],
            4,
        );
    }
    for fault in [
        Fault::WrongContentRange(ContentRangeFault::Shifted),
        Fault::Gzip,
        Fault::Clamped { length: 100 },
    ] {
        let name = format!("{fault:?}");
        // Only data, not headers.
        hub.inject(move |request, _| {
            let start = request.range.as_deref()?.strip_prefix("bytes=")?.split('-').next()?;
            let is_data = request.host == Host::Cdn && start.parse::<u64>().is_ok_and(|at| at > 8);
            is_data.then(|| fault.clone())
        });
        let error = read(&model, &["*"]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network, "{name}: {}", error_chain(&error));
    }
}

/// A local file has no commit. Another file of the same size has another number or time of change.
#[tokio::test]
async fn a_file_that_has_changed_since_its_header_was_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let file = write_file(&[("w", Dtype::F32, &[100, 10])]);
    fs::write(&path, &file).unwrap();
    let client = Client::new().unwrap();
    for changed in [&file[..file.len() - 1], &[&file[..], b"x"].concat(), &file] {
        let reader = client
            .source(Source::Local(path.clone()))
            .tensors(TensorSelection::all())
            .await
            .unwrap();
        let other = folder.path().join("other.safetensors");
        fs::write(&other, changed).unwrap();
        fs::rename(&other, &path).unwrap();
        let error = reader.tensors().try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{}", error_chain(&error));
        fs::write(&path, &file).unwrap();
    }
}

#[tokio::test]
async fn a_dropped_stream_cancels_its_requests() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let reader = client(&hub)
        .model("org/model")
        .tensors(TensorSelection::all())
        .max_memory(0)
        .await
        .unwrap();
    hub.inject(|request, _| {
        (request.host == Host::Cdn).then_some(Fault::StallInBody { after: 10 })
    });
    let before = hub.log().len();
    let mut chunks = reader.chunks();
    let mut polls = 0;
    while hub.log().iter().skip(before).filter(|request| request.host == Host::Cdn).count() < 3 {
        assert!(futures::poll!(chunks.try_next()).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
        polls += 1;
        assert!(polls < 60_000);
    }
    drop(chunks);
    while hub.open_connections(Host::Cdn) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        polls += 1;
        assert!(polls < 60_000);
    }
}

#[tokio::test]
async fn selections_that_cannot_be_read_are_errors_with_the_reason() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let model = client(&hub).model("org/model");
    for (pattern, message) in [
        ("x", "no tensor matches `x`"),
        ("arg", "no tensor matches `arg`; `*arg*` matches a part of a name"),
        ("large[:,1]", "only the first dimension can be sliced"),
        ("large[0:2000]", "tensor `large` has 1000 rows"),
    ] {
        let error = read(&model, &[pattern]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(message), "{error}");
    }
}
