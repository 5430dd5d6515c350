//! The options of memory.
//!
//! Add a test here if an option changes the result, or is rejected.

use serde_json::Value;

use super::super::run;
use super::hub;

#[test]
fn options_without_a_view_are_rejected() {
    let hub = hub();
    let output = run(&hub, &["org/dense", "--context", "4k"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("--memory|--fit"), "{}", output.stderr);
}

#[test]
fn options_of_vllm_change_the_size() {
    let hub = hub();
    let cache = |args: &[&str]| {
        let fixed = ["org/sliding", "--json", "--summary", "--memory", "--engine", "vllm"];
        let output = run(&hub, &[&fixed, args].concat());
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        (json["memory"]["cacheBytes"].as_u64(), json["memory"]["unknown"]["code"].clone())
    };
    // 4 heads of 256 elements: pages of 65,536 bytes. Five windows of 512 tokens, and one full layer.
    let blocks = |windows: u64, full: u64| (Some((5 * windows + full) * 65_536), Value::Null);
    assert_eq!(cache(&["--context", "64k"]), blocks(1_056 + 1, 4_096));
    let small = ["--context", "64k", "--max-num-batched-tokens", "2048"];
    assert_eq!(cache(&small), blocks(288 + 1, 4_096));
    let (Some(two), _) = cache(&["--context", "64k", "--tp", "2"]) else { panic!() };
    assert_eq!(2 * two, blocks(1_057, 4_096).0.unwrap());
    assert_eq!(cache(&["--tp", "3"]), (None, "indivisible".into()));
    let output = run(&hub, &["org/sliding", "--memory", "--tp", "2"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("require `--engine vllm`"), "{}", output.stderr);
}

/// vLLM leaves a tenth of each GPU to others, and with several GPUs all sizes are per GPU.
#[test]
fn the_share_of_vllm_and_the_number_of_gpus_are_stated() {
    let hub = hub();
    let fit = |args: &[&str]| run(&hub, &[&["org/dense", "--engine", "vllm"], args].concat());
    // 8,192 tokens of 2,048 bytes, and 1,000,000 bytes of weights: 17,777,216 bytes.
    let short = fit(&["--fit", "19MB"]);
    assert_eq!(short.code, 1, "{}", short.stdout);
    assert!(
        short.stdout.contains("17.1 MB (0.9 of 19.0 MB): no, at 8,192 tokens"),
        "{}",
        short.stdout
    );
    let all = fit(&["--fit", "19MB", "--gpu-memory-utilization", "1"]);
    assert_eq!(all.code, 0, "{}", all.stdout);
    assert!(all.stdout.contains("19.0 MB: yes"), "{}", all.stdout);
    let json = fit(&["--fit", "19MB", "--json", "--summary"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let memory = &json["memory"];
    assert_eq!(
        (&memory["budgetBytes"], &memory["usableBytes"]),
        (&19_000_000.into(), &17_100_000.into())
    );
    assert_eq!(memory["vllm"]["gpuMemoryUtilization"], 0.9);
    let two = fit(&["--fit", "19MB", "--tp", "2"]).stdout;
    assert!(two.contains("17.1 MB (0.9 of 19.0 MB) per GPU: yes"), "{two}");
    assert!(two.contains("weights/GPU") && two.contains("total/GPU"), "{two}");
    let table =
        run(&hub, &["org/dense", "org/dense", "--memory", "--engine", "vllm", "--tp", "2"]).stdout;
    assert!(table.lines().next().unwrap().contains("memory/GPU"), "{table}");
    for (args, text) in [
        (&["--fit", "19MB", "--gpu-memory-utilization", "1.5"][..], "above 0 and at most 1"),
        (&["--fit", "19MB", "--gpu-memory-utilization", "90%"], "above 0 and at most 1"),
    ] {
        let refused = fit(args);
        assert!(refused.code == 2 && refused.stderr.contains(text), "{}", refused.stderr);
    }
    let other = run(&hub, &["org/dense", "--fit", "1GB", "--gpu-memory-utilization", "0.9"]);
    assert!(
        other.code == 2 && other.stderr.contains("require `--engine vllm`"),
        "{}",
        other.stderr
    );
}
