//! The largest modules of a checkpoint.

use std::cmp::Reverse;

use super::rows::TableRow;
use hf_meta::report::tree::{Tree, TreeContent, TreeModule};

/// The maximum number of modules in the table.
const MAX_MODULES: usize = 10;

/// Returns the largest modules in descending order of size. Together they cover all weights.
///
/// The list starts with the top level of the tree. The largest module is repeatedly replaced by its submodules, as
/// long as the list stays short enough.
pub(super) fn largest(tree: Tree) -> Vec<TableRow> {
    let mut modules = tree.modules;
    while let Some(at) = largest_module(&modules) {
        let TreeContent::Modules(parts) = &modules[at].content else { break };
        if modules.len() - 1 + parts.len() > MAX_MODULES {
            break;
        }
        let name = std::mem::take(&mut modules[at].name);
        if let TreeContent::Modules(parts) = modules.swap_remove(at).content {
            modules.extend(parts.into_iter().map(|mut part| {
                part.name = format!("{name}.{}", part.name);
                part
            }));
        }
    }
    modules.sort_by_key(|module| Reverse(module.bytes));
    rows(&modules)
}

/// Returns the index of the largest module with submodules.
fn largest_module(modules: &[TreeModule]) -> Option<usize> {
    let has_submodules = |module: &TreeModule| matches!(module.content, TreeContent::Modules(_));
    let parents = modules.iter().enumerate().filter(|(_, module)| has_submodules(module));
    parents.max_by_key(|(_, module)| module.bytes).map(|(at, _)| at)
}

/// Returns one row per module, and a final row for all modules beyond the maximum.
fn rows(modules: &[TreeModule]) -> Vec<TableRow> {
    let (first, rest) = modules.split_at(modules.len().min(MAX_MODULES));
    let mut rows: Vec<_> = first.iter().map(TableRow::from_module).collect();
    if !rest.is_empty() {
        rows.push(TableRow {
            name: format!("{} more", rest.len()),
            count: rest.iter().fold(0, |sum, module| sum.saturating_add(module.elements)),
            bytes: rest.iter().fold(0, |sum, module| sum.saturating_add(module.bytes)),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a module with these parts, or a tensor if there are none.
    fn module(name: &str, bytes: u64, parts: Vec<TreeModule>) -> TreeModule {
        let json = format!(
            r#"{{"{name}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#
        );
        let header = hf_meta::SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        let mut module = Tree::from_headers([&header]).modules.remove(0);
        if !parts.is_empty() {
            module.content = TreeContent::Modules(parts);
        }
        module
    }

    fn largest_rows(modules: Vec<TreeModule>) -> Vec<(String, u64)> {
        let mut tree = Tree::from_headers::<hf_meta::formats::FileHeader>([]);
        tree.modules = modules;
        largest(tree).into_iter().map(|row| (row.name, row.bytes)).collect()
    }

    #[test]
    fn the_largest_module_is_replaced_by_its_submodules() {
        let attention = module("attn", 30, vec![module("q", 10, vec![]), module("k", 20, vec![])]);
        let layers = module("h", 90, vec![attention, module("mlp", 60, vec![])]);
        let rows = largest_rows(vec![module("wte", 40, vec![]), layers]);
        let expected = [("h.mlp", 60), ("wte", 40), ("h.attn.k", 20), ("h.attn.q", 10)];
        assert_eq!(rows, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn a_module_with_too_many_submodules_stays_one_row() {
        let many =
            |count| (0..count).map(|at| module(&format!("{at}"), 1, vec![])).collect::<Vec<_>>();
        let rows = largest_rows(vec![module("a", 11, many(11)), module("b", 5, vec![])]);
        assert_eq!(rows, [("a".to_owned(), 11), ("b".to_owned(), 5)]);
        let rows = largest_rows(many(14));
        assert_eq!(rows.len(), MAX_MODULES + 1);
        assert_eq!(rows.last(), Some(&("4 more".to_owned(), 4)));
        assert_eq!(largest_rows(vec![]), []);
    }
}
