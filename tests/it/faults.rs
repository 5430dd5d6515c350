//! The fault matrix: every fault, in every read, once and always.
//!
//! What is expected is in [`MATRIX`], a table for readers, too, which says what its columns are.

mod cell;
pub(crate) mod outcome;
mod spent;
mod table;

use futures::future::join_all;
use futures::stream::{self, StreamExt};

use cell::{Bench, Cell, READS, Times};
use table::Row;

const MATRIX: &str = include_str!("faults/matrix.md");

/// Rows at work at the same time.
const AT_ONCE: usize = 8;

/// A row, what each of its reads came to, and what the longest of them waited for; when the fault comes
/// once and, if that differs, when it comes always.
struct Observed {
    row: Row,
    cells: Vec<String>,
    spent: String,
}

async fn observe(row: Row) -> Observed {
    let bench = Bench::new(&row);
    let run =
        |read| join_all([Times::Once, Times::Always].map(|times| bench.run(Cell { read, times })));
    let reads = join_all(READS.map(run)).await;
    let cells = reads.iter().map(|runs| both([&runs[0].0, &runs[1].0])).collect();
    let longest = |times: usize| reads.iter().map(|runs| runs[times].1).max().unwrap().to_string();
    let spent = both([&longest(0), &longest(1)]);
    drop(bench);
    Observed { row, cells, spent }
}

fn both([once, always]: [&str; 2]) -> String {
    if once == always { once.to_owned() } else { format!("{once}; {always}") }
}

fn rendered(Observed { row, cells, spent }: &Observed) -> String {
    format!("| {} | {} | {} | {spent} | {} |", row.name, row.hop, cells.join(" | "), row.waste)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_in_every_read() {
    let observed = stream::iter(table::rows()).map(observe).buffered(AT_ONCE);
    let observed: Vec<_> = observed.map(|row| rendered(&row)).collect().await;
    let rows = MATRIX.lines().filter(|line| line.starts_with("| "));
    let expected: Vec<_> = rows.skip(1).collect();
    let wrong: Vec<_> = observed.iter().filter(|row| !expected.contains(&row.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(observed, expected);
}
