//! The fault matrix: every fault in every read, once and always.
//!
//! The expected results are in [`MATRIX`], a table that explains its columns.

mod cell;
pub(crate) mod outcome;
mod table;
mod waiting_time;

use futures::future::join_all;
use futures::stream::{self, StreamExt};

use cell::{Cell, READS, Testbed, Times};
use table::Row;

const MATRIX: &str = include_str!("faults/matrix.md");

/// The number of rows that run concurrently.
const CONCURRENT_ROWS: usize = 8;

/// The results of a row. Each cell has the result for a fault that occurs once and, if different, for one that
/// always occurs.
struct ObservedRow {
    row: Row,
    cells: Vec<String>,
    /// The longest waiting time of all reads.
    time: String,
}

async fn observe(row: Row) -> ObservedRow {
    let testbed = Testbed::new(&row);
    let run = |read| {
        join_all([Times::Once, Times::Always].map(|times| testbed.run(Cell { read, times })))
    };
    let reads = join_all(READS.map(run)).await;
    let cells = reads.iter().map(|runs| both([&runs[0].0, &runs[1].0])).collect();
    let longest = |times: usize| reads.iter().map(|runs| runs[times].1).max().unwrap().to_string();
    let time = both([&longest(0), &longest(1)]);
    drop(testbed);
    ObservedRow { row, cells, time }
}

fn both([once, always]: [&str; 2]) -> String {
    if once == always { once.to_owned() } else { format!("{once}; {always}") }
}

fn rendered(ObservedRow { row, cells, time }: &ObservedRow) -> String {
    format!("| {} | {} | {} | {time} | {} |", row.name, row.response, cells.join(" | "), row.wasted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_in_every_read() {
    let observed = stream::iter(table::rows()).map(observe).buffered(CONCURRENT_ROWS);
    let observed: Vec<_> = observed.map(|row| rendered(&row)).collect().await;
    let rows = MATRIX.lines().filter(|line| line.starts_with("| "));
    let expected: Vec<_> = rows.skip(1).collect();
    let wrong: Vec<_> = observed.iter().filter(|row| !expected.contains(&row.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(observed, expected);
}
