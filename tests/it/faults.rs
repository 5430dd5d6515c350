//! The fault matrix: every fault, in every read, once and always.
//!
//! What is expected is in [`MATRIX`], a table for readers, too. Its cells say what a call comes to when one
//! of its reads meets the fault, and how often the Hub was asked for that read: `ok ×2; status 500 ×4` is
//! recovered at the second attempt when the fault comes once, and status 500 after four attempts when it
//! comes always; a cell without `;` holds for both. Waste is the most that is read of a spoiled answer in
//! vain, in a call that recovers.

mod cell;
mod outcome;
mod table;

use futures::future::join_all;
use futures::stream::{self, StreamExt};

use cell::{Bench, Cell, READS, Times};
use table::Row;

const MATRIX: &str = include_str!("faults/matrix.md");

/// Rows at work at the same time.
const AT_ONCE: usize = 8;

/// What each read of a row came to, when the fault comes once and, if that differs, when it comes always.
async fn observe(row: Row) -> (Row, Vec<String>) {
    let bench = Bench::new(&row);
    let cell = async |read| {
        let runs = [Times::Once, Times::Always].map(|times| bench.run(Cell { read, times }));
        let runs = join_all(runs).await;
        if runs[0] == runs[1] { runs[0].clone() } else { runs.join("; ") }
    };
    let cells = join_all(READS.map(cell)).await;
    drop(bench);
    (row, cells)
}

fn rendered((row, cells): &(Row, Vec<String>)) -> String {
    format!("| {} | {} | {} | {} |", row.name, row.hop, cells.join(" | "), row.waste)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_in_every_read() {
    let observed = stream::iter(table::rows()).map(observe).buffered(AT_ONCE);
    let observed: Vec<_> = observed.map(|row| rendered(&row)).collect().await;
    let expected: Vec<_> = MATRIX.lines().skip(2).collect();
    let wrong: Vec<_> = observed.iter().filter(|row| !expected.contains(&row.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(observed, expected);
}
