//! Columns of text, laid out in one pass and written in another, so that no long table is held whole.

use std::io::{self, Write};

/// The widest that a column is made for the sake of its cells. A wider cell pushes the rest of its own
/// row aside, and no other row.
const WIDEST: usize = 80;

/// The widths of columns, two spaces apart.
pub(crate) struct Columns<const N: usize> {
    widths: [usize; N],
    are_figures: [bool; N],
}

impl<const N: usize> Columns<N> {
    /// Columns of no width yet. Those of figures are aligned to the right.
    pub(crate) fn new(are_figures: [bool; N]) -> Self {
        Self { widths: [0; N], are_figures }
    }

    /// Makes the columns wide enough for a row.
    pub(crate) fn fit(&mut self, row: &[String; N]) {
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = cell.chars().count().min(WIDEST).max(*width);
        }
    }

    /// Writes a row, without spaces at its end.
    pub(crate) fn write(&self, out: &mut impl Write, row: &[String; N]) -> io::Result<()> {
        for (at, cell) in row.iter().enumerate() {
            let (width, gap) = (self.widths[at], if at == 0 { "" } else { "  " });
            if self.are_figures[at] {
                write!(out, "{gap}{cell:>width$}")?;
            } else if at + 1 < N {
                write!(out, "{gap}{cell:<width$}")?;
            } else if !cell.is_empty() {
                write!(out, "{gap}{cell}")?;
            }
        }
        writeln!(out)
    }
}

/// Writes the rows of a short table.
pub(crate) fn table<const N: usize>(
    out: &mut impl Write,
    are_figures: [bool; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut columns = Columns::new(are_figures);
    for row in rows {
        columns.fit(row);
    }
    rows.iter().try_for_each(|row| columns.write(out, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_line_up_but_for_those_that_are_too_wide() {
        let wide = "w".repeat(100);
        let rows = [["a", "1", "x"], ["bb", "1,000", "y"], [&wide, "2", "z"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        table(&mut out, [false, true, false], &rows).unwrap();
        let pad = " ".repeat(80 - 2);
        let expected = format!("a {pad}      1  x\nbb{pad}  1,000  y\n{wide}      2  z\n");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
