//! The largest modules of a set of weights.

use std::cmp::Reverse;

use super::rows::Row;
use crate::report::tree::{Tree, TreeContent, TreeModule};

/// The most modules that are told.
const MOST_MODULES: usize = 10;

/// The modules that the weights are mostly made of, the largest first; together they are all of them.
///
/// What is at the top of the tree is told, and the largest of it by its own modules instead, and so
/// on, while that leaves few enough to be read.
pub(super) fn largest(tree: Tree) -> Vec<Row> {
    let mut modules = tree.modules;
    while let Some(at) = largest_module(&modules) {
        let TreeContent::Modules(parts) = &modules[at].content else { break };
        if modules.len() - 1 + parts.len() > MOST_MODULES {
            break;
        }
        let name = std::mem::take(&mut modules[at].name);
        if let TreeContent::Modules(parts) = modules.swap_remove(at).content {
            let within =
                |part: TreeModule| TreeModule { name: format!("{name}.{}", part.name), ..part };
            modules.extend(parts.into_iter().map(within));
        }
    }
    modules.sort_by_key(|module| Reverse(module.bytes));
    rows(&modules)
}

/// Where the largest of those is that are made of others.
fn largest_module(modules: &[TreeModule]) -> Option<usize> {
    let is_made_of_others = |module: &TreeModule| matches!(module.content, TreeContent::Modules(_));
    let made = modules.iter().enumerate().filter(|(_, module)| is_made_of_others(module));
    made.max_by_key(|(_, module)| module.bytes).map(|(at, _)| at)
}

/// A row each, and one for all beyond the most.
fn rows(modules: &[TreeModule]) -> Vec<Row> {
    let (first, rest) = modules.split_at(modules.len().min(MOST_MODULES));
    let mut rows: Vec<_> = first.iter().map(Row::of_module).collect();
    if !rest.is_empty() {
        rows.push(Row {
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

    /// A tensor, or a module of these.
    fn module(name: &str, bytes: u64, parts: Vec<TreeModule>) -> TreeModule {
        let json = format!(
            r#"{{"{name}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#
        );
        let header = crate::SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        let tensor = Tree::from_headers([&header]).modules.remove(0);
        if parts.is_empty() {
            tensor
        } else {
            TreeModule { content: TreeContent::Modules(parts), ..tensor }
        }
    }

    fn told(modules: Vec<TreeModule>) -> Vec<(String, u64)> {
        let mut tree = Tree::from_headers([]);
        tree.modules = modules;
        largest(tree).into_iter().map(|row| (row.name, row.bytes)).collect()
    }

    #[test]
    fn the_largest_module_is_told_by_its_own() {
        let attention = module("attn", 30, vec![module("q", 10, vec![]), module("k", 20, vec![])]);
        let layers = module("h", 90, vec![attention, module("mlp", 60, vec![])]);
        let rows = told(vec![module("wte", 40, vec![]), layers]);
        let expected = [("h.mlp", 60), ("wte", 40), ("h.attn.k", 20), ("h.attn.q", 10)];
        assert_eq!(rows, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn a_module_of_too_many_stays_one() {
        let many =
            |count| (0..count).map(|at| module(&format!("{at}"), 1, vec![])).collect::<Vec<_>>();
        let rows = told(vec![module("a", 11, many(11)), module("b", 5, vec![])]);
        assert_eq!(rows, [("a".to_owned(), 11), ("b".to_owned(), 5)]);
        let rows = told(many(14));
        assert_eq!(rows.len(), MOST_MODULES + 1);
        assert_eq!(rows.last(), Some(&("4 more".to_owned(), 4)));
        assert_eq!(told(vec![]), []);
    }
}
