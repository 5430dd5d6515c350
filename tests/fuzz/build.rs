//! Links the counters of steps and memory into every target.

fn main() {
    println!("cargo:rerun-if-changed=src/limits.c");
    cc::Build::new().file("src/limits.c").opt_level(2).cargo_metadata(false).compile("limits");
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    // The archive as a whole, because libFuzzer refers to none of its names before the linker has renamed them.
    println!(
        "cargo:rustc-link-arg-bins=-Wl,--whole-archive,{folder}/liblimits.a,--no-whole-archive"
    );
    // libFuzzer defines the first as a function that does nothing.
    for name in ["__sanitizer_cov_trace_pc", "LLVMFuzzerTestOneInput"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--wrap={name}");
    }
}
