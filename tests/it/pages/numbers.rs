//! The numbers of the README, compared with the place where they are measured.
//!
//! Add a test here if a page repeats a number of another file. Numbers that are counted from fixtures are compared next to
//! the count, in `count/tests/oracles.rs` and `memory/tests/oracles.rs` of `hf-meta-count`.

const README: &str = include_str!("../../../README.md");

/// Returns the cells of the first row of a table whose first cell contains a text, without spaces.
fn row<'p>(page: &'p str, first: &str) -> Vec<&'p str> {
    let mut rows = page.lines().filter(|line| line.starts_with('|'));
    let row = rows.find(|line| line.split('|').nth(1).is_some_and(|cell| cell.contains(first)));
    let row = row.unwrap_or_else(|| panic!("no row with {first}"));
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// `benches/peers/run` prints the table of the page.
#[test]
fn times_of_other_clients_are_the_measured_ones() {
    const PAGE: &str = include_str!("../../../src/docs/speed.md");

    let column = |row: &[&str], name: &str| {
        row.iter().position(|cell| cell.contains(name)).unwrap_or_else(|| panic!("no {name}"))
    };
    let measured = column(&row(PAGE, "call"), "bigscience/bloom");
    let clients = ["`hf-meta`", "`huggingface_hub`", "`@huggingface/hub`", "`hf-mem`"];
    let header = README.lines().find(|line| line.starts_with("| | `hf-meta`")).unwrap();
    let header: Vec<_> = header.trim_matches('|').split('|').collect();
    let times = row(README, "to read the headers of BLOOM");
    let mut wrong = Vec::new();
    for client in clients {
        let expected = row(PAGE, client)[measured].split(',').next().unwrap();
        let stated = times[column(&header, client)];
        if stated != expected {
            wrong.push(format!("{client}: {stated} in the README, {expected} in speed.md"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The pages name the versions of other programs that the scripts install.
#[test]
fn versions_of_other_clients_are_the_installed_ones() {
    let pages = [
        ("README.md", README),
        ("memory.md", include_str!("../../../src/docs/memory.md")),
        ("quantization.md", include_str!("../../../src/docs/quantization.md")),
        ("speed.md", include_str!("../../../src/docs/speed.md")),
    ];
    let scripts = [
        include_str!("../../../benches/peers/run"),
        include_str!("../../../benches/peers/gguf"),
        include_str!("../../../.ci/peers"),
        include_str!("../../../.ci/nightly"),
        include_str!("../../../fixtures/memory/transformers.tsv"),
    ];
    // The name before the version in pages, and in scripts.
    let programs: [(&str, &[&str]); 4] = [
        ("huggingface_hub", &["huggingface_hub=="]),
        ("hf-mem", &["hf-mem==", "elements in hf-mem "]),
        ("@huggingface/hub", &["@huggingface/hub@"]),
        ("@huggingface/gguf", &["@huggingface/gguf@"]),
    ];
    let version = |text: &str| -> String {
        let version = text.chars().take_while(|char| char.is_ascii_digit() || *char == '.');
        version.collect::<String>().trim_end_matches('.').to_owned()
    };
    let mut wrong = Vec::new();
    for (name, starts) in programs {
        let found = scripts.iter().flat_map(|script| {
            starts.iter().flat_map(move |start| script.split(start).skip(1).map(version))
        });
        let installed: std::collections::BTreeSet<_> = found.collect();
        assert_eq!(installed.len(), 1, "{name} is installed as {installed:?}");
        let starts_in_pages = [format!("`{name}` "), format!(" {name} ")];
        for (page, text) in pages {
            let stated = starts_in_pages.iter().flat_map(|start| text.split(start).skip(1));
            let stated = stated.map(version);
            for stated in stated.filter(|stated| !stated.is_empty() && !installed.contains(stated))
            {
                wrong.push(format!("{page} has {name} {stated}, measured is {installed:?}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The version of Rust that the manifest requires, and the models that the quickstart reads.
#[test]
fn the_readme_has_the_facts_of_the_manifests() {
    let manifest = include_str!("../../../Cargo.toml");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let rust = format!("Rust {}", rust.trim_matches('"'));
    let quickstart = include_str!("../../../examples/quickstart/output.txt").lines().count() - 1;
    let words = ["seven", "eight", "nine", "ten", "eleven"];
    let models = format!("reads {} models", words[quickstart - 7]);
    let pages = [
        ("README.md", README, vec![&rust, &models]),
        ("CONTRIBUTING.md", include_str!("../../../CONTRIBUTING.md"), vec![&rust, &models]),
        ("install.md", include_str!("../../../src/docs/install.md"), vec![&rust]),
    ];
    let missing = pages.iter().flat_map(|(page, text, facts)| {
        let missing = facts.iter().filter(|fact| !text.contains(fact.as_str()));
        missing.map(move |fact| format!("{page} must say: {fact}"))
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
}
