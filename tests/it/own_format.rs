//! A format that is not part of the library, through its public interface.

use hf_meta::{Client, Dtype, Model, Tree, Weights};

use crate::hub::{File, LocalHub, Repo};

#[path = "../../examples/tensorsafe.rs"]
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
    assert!(report.is_valid() && report.parameters.counted == Some(1_600), "{:?}", report.findings);
    assert_eq!(model.count().await.unwrap().parameter_count, files.report.parameter_count);
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
