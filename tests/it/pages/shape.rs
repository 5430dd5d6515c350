//! The lengths of files and functions that `CONTRIBUTING.md` states.

use std::fs;
use std::path::Path;

/// The maximum number of lines of code in a file, without comments, blank lines and tests.
const MAX_FILE_LINES: usize = 400;

/// The maximum number of lines of a function, with its comments.
const MAX_FUNCTION_LINES: usize = 50;

/// Returns the lines of a file without its tests.
fn without_tests(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let starts_test = line.starts_with("mod ")
            && line.ends_with('{')
            && lines.last().is_some_and(|last| last.starts_with("#[cfg(") && last.contains("test"));
        is_test |= starts_test;
        if !is_test {
            lines.push(line);
        }
        is_test &= line != "}";
    }
    lines
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// Returns the name of the function whose declaration begins in a line.
fn function(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1.trim_start(),
            None => public.trim_start(),
        };
    }
    while let Some(inner) = ["const ", "async "].iter().find_map(|word| rest.strip_prefix(word)) {
        rest = inner;
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// Returns the functions with more lines than allowed.
fn long_functions(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let rest = &lines[start..];
        // A declaration of a trait ends with `;`, and a function in one line with `}`.
        let head = rest.iter().find(|line| line.ends_with(['{', ';', '}']));
        if !head.is_some_and(|head| head.ends_with('{')) {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let length = rest.iter().position(|line| **line == end).map_or(rest.len(), |at| at + 1);
        if length > MAX_FUNCTION_LINES {
            found.push(format!("`{name}` has {length} lines"));
        }
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    const TESTS: [&str; 5] = ["tests", "tests.rs", "oracle.rs", "oracles.rs", "proptest_config.rs"];

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path().join("src"));
    let mut folders: Vec<_> = crates.chain([root.join("src")]).collect();
    let (mut files, mut found) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if TESTS.contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).unwrap();
            let lines = without_tests(&text);
            let shown = path.strip_prefix(&root).unwrap().display();
            let code = lines.iter().filter(|line| is_code(line)).count();
            if code > MAX_FILE_LINES {
                found.push(format!("{shown} has {code} lines of code: give one idea its own file"));
            }
            let long = long_functions(&lines).into_iter();
            found.extend(long.map(|long| format!("{shown}: {long}: give a step its own name")));
        }
    }
    found.sort();
    assert!(files > 200, "{files}");
    assert_eq!(found, [""; 0]);
}

#[test]
fn long_functions_are_found() {
    let function = |length: usize| {
        let body = "        // A comment counts, too.\n".repeat(length - 3);
        format!("    pub(crate) async fn step(\n        &self) {{\n{body}    }}\n")
    };
    let found = |text: &str| long_functions(&without_tests(text));
    let long = ["`step` has 51 lines"];
    assert_eq!(found(&function(50)), [""; 0]);
    assert_eq!(found(&function(51)), long);
    let declared = format!("trait T {{\n    fn read(\n        &self);\n}}\n{}", function(51));
    assert_eq!(found(&declared), long);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(51));
    assert_eq!(found(&tests), [""; 0]);
    assert_eq!(found(&(tests + &function(51))), long);
}
