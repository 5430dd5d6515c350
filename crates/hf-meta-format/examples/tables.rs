//! Prints the packed tables, for programs that are built without the feature `tables`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(include_bytes!(concat!(env!("OUT_DIR"), "/tables.txt")))
}
