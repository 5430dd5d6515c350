//! Generated tables, compared with the lines by hand that their generators copy.

/// The first words of the lines that `layouts.py` copies.
const EXCEPTIONS: &str = "# Exceptions of all architectures.";

/// Nobody edits the table, and whoever edits the corrections runs `layouts.py --exceptions`.
#[test]
fn the_table_of_layouts_has_the_exceptions_of_the_corrections() {
    let corrections = include_str!("../../oracles/layout_corrections.txt");
    let table = include_str!("../../../crates/hf-meta-count/src/architectures/layouts.txt");
    let copied =
        |text: &'static str| text.split_once(EXCEPTIONS).expect("the text has exceptions").1;
    assert!(
        copied(table) == copied(corrections),
        "run `tests/oracles/layouts.py --exceptions crates/hf-meta-count/src/architectures/layouts.txt`"
    );
}
