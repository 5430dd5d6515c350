//! The shape of the code: a module imports from its own floor and from lower ones only.

use std::fs;
use std::path::Path;

/// The modules of the library, from the ground up. The format knows nothing of HTTP, HTTP nothing of
/// the Hub, the Hub nothing of a client; the command sees only what every other user sees.
const FLOORS: [&[&str]; 14] = [
    &["safetensors", "read", "layout", "text"],
    &["quantization"],
    &["http", "disk"],
    &["hub"],
    &["source", "snapshot", "parse"],
    &["diff", "tree", "verdict"],
    &["json", "error"],
    &["badge", "cache"],
    &["store"],
    &["load"],
    &["model"],
    &["client"],
    &["env", "page"],
    &["server"],
];

fn floor(module: &str) -> usize {
    let found = FLOORS.iter().position(|modules| modules.contains(&module));
    found.unwrap_or_else(|| panic!("module `{module}` has no floor"))
}

/// Every source file below a folder, with its text.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// The modules that a text names by `crate::`.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::").skip(1).filter_map(|rest| {
        let name = rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
        Some(name).filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

#[test]
fn imports_lead_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for (floor_at, modules) in FLOORS.iter().enumerate() {
        for module in *modules {
            let mut files = vec![];
            if src.join(module).is_dir() {
                files.extend(sources(&src.join(module)));
            }
            if let Ok(text) = fs::read_to_string(src.join(format!("{module}.rs"))) {
                files.push((format!("{module}.rs"), text));
            }
            assert!(!files.is_empty(), "module `{module}` is gone; take it off its floor");
            for (file, text) in files {
                for import in imports(&text) {
                    assert!(
                        floor(import) <= floor_at,
                        "{file} imports `{import}` of a higher floor"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 20, "only {checked} imports were found");
}

#[test]
fn every_module_has_a_floor() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let declared = lib.lines().filter_map(|line| {
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
    });
    assert!(declared.map(floor).count() >= 12);
}

#[test]
fn the_command_uses_the_public_library() {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli");
    for (file, text) in sources(&cli) {
        assert_eq!(imports(&text).next(), None, "{file} reaches into the library");
    }
}
