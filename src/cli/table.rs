//! Tables of the command: a list of columns, and rows that are formatted twice (first to measure, then
//! to write), so that a table of a million tensors is never held in memory.

use std::io::{self, Write};

use anstyle::Style;

/// The limit of a column's width, in characters. A longer cell shifts only the rest of its own row.
const MAX_CELL_WIDTH: usize = 80;

/// The side of a column on which its cells line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Left,
    Right,
}

/// One column of a table whose rows are of type `R`.
struct Column<'a, R> {
    heading: &'static str,
    alignment: Alignment,
    cell: Box<dyn Fn(&R) -> String + 'a>,
    style: Style,
    /// The number of spaces before the column.
    gap: usize,
    /// The width below which the column is not cut; `None` for a column that is never cut.
    min_width: Option<usize>,
    /// The narrowest width at which the column is shown at all.
    useful_width: usize,
}

/// A table: its columns from left to right, and the width that it has to fit.
pub(crate) struct Table<'a, R> {
    columns: Vec<Column<'a, R>>,
    max_width: Option<usize>,
}

impl<'a, R> Table<'a, R> {
    pub(crate) fn new() -> Self {
        Self { columns: Vec::new(), max_width: None }
    }

    /// Adds a column of text.
    pub(crate) fn text(self, heading: &'static str, cell: impl Fn(&R) -> String + 'a) -> Self {
        self.column(heading, Alignment::Left, cell)
    }

    /// Adds a column of numbers, aligned to the right.
    pub(crate) fn number(self, heading: &'static str, cell: impl Fn(&R) -> String + 'a) -> Self {
        self.column(heading, Alignment::Right, cell)
    }

    fn column(
        mut self,
        heading: &'static str,
        alignment: Alignment,
        cell: impl Fn(&R) -> String + 'a,
    ) -> Self {
        let (cell, style) = (Box::new(cell), Style::new());
        let (gap, min_width, useful_width) = (2, None, 0);
        let column = Column { heading, alignment, cell, style, gap, min_width, useful_width };
        self.columns.push(column);
        self
    }

    /// Removes the last column unless a condition holds.
    pub(crate) fn shown_if(mut self, is_shown: bool) -> Self {
        if !is_shown {
            self.columns.pop();
        }
        self
    }

    /// Sets the terminal style of the cells of the last column.
    pub(crate) fn style(self, style: Style) -> Self {
        self.change_last(|column| column.style = style)
    }

    /// Sets the number of spaces before the last column, 2 by default.
    pub(crate) fn gap(self, gap: usize) -> Self {
        self.change_last(|column| column.gap = gap)
    }

    /// Lets [`Table::fit`] cut the last column down to a width.
    pub(crate) fn can_shrink_to(self, min_width: usize) -> Self {
        self.change_last(|column| column.min_width = Some(min_width))
    }

    /// Lets [`Table::fit`] cut the last column, and drop it where less than a width is left for it.
    pub(crate) fn dropped_below(self, useful_width: usize) -> Self {
        self.can_shrink_to(0).change_last(|column| column.useful_width = useful_width)
    }

    fn change_last(mut self, change: impl FnOnce(&mut Column<'a, R>)) -> Self {
        self.columns.last_mut().map(change);
        self
    }

    /// Cuts columns that can shrink until a row has at most this many characters.
    pub(crate) fn fit(self, max_width: Option<usize>) -> Self {
        Self { max_width, ..self }
    }

    /// Writes the headings, unless all are empty, and the rows. `rows` is called twice.
    pub(crate) fn write<I>(&self, out: &mut impl Write, rows: impl Fn() -> I) -> io::Result<()>
    where
        I: IntoIterator<Item = R>,
    {
        let headings = self.columns.iter().map(|column| column.heading);
        let has_headings = headings.clone().any(|heading| !heading.is_empty());
        let mut widths: Vec<_> = headings.map(|heading| heading.chars().count()).collect();
        for row in rows() {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                let cell = (column.cell)(&row).chars().count();
                *width = cell.min(MAX_CELL_WIDTH).max(*width);
            }
        }
        self.shrink(&mut widths);
        if has_headings {
            let heading = |column: &Column<'_, R>| (column.heading.to_owned(), Style::new());
            self.write_row(out, &widths, heading)?;
        }
        rows().into_iter().try_for_each(|row| {
            self.write_row(out, &widths, |column| ((column.cell)(&row), column.style))
        })
    }

    /// Takes width from the columns that can shrink, the last one first.
    fn shrink(&self, widths: &mut [usize]) {
        let Some(max_width) = self.max_width else { return };
        let gaps: usize = self.columns.iter().skip(1).map(|column| column.gap).sum();
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(max_width);
        for (width, column) in widths.iter_mut().zip(&self.columns).rev() {
            let Some(min_width) = column.min_width else { continue };
            let mut narrow = width.saturating_sub(excess).max(min_width).min(*width);
            if narrow < *width && narrow < column.useful_width {
                narrow = 0;
            }
            excess = excess.saturating_sub(*width - narrow);
            *width = narrow;
        }
    }

    /// Writes one row without spaces at its end.
    fn write_row(
        &self,
        out: &mut impl Write,
        widths: &[usize],
        cell: impl Fn(&Column<'a, R>) -> (String, Style),
    ) -> io::Result<()> {
        let mut spaces = 0;
        for (at, (column, &width)) in self.columns.iter().zip(widths).enumerate() {
            let (mut text, style) = cell(column);
            if self.max_width.is_some() && column.min_width.is_some() {
                cut(&mut text, width);
            }
            let padding = width.saturating_sub(text.chars().count());
            let (before, after) = match column.alignment {
                Alignment::Left => (0, padding),
                Alignment::Right => (padding, 0),
            };
            spaces += before + if at == 0 { 0 } else { column.gap };
            if !text.is_empty() {
                write!(out, "{:spaces$}{style}{text}{style:#}", "")?;
                spaces = 0;
            }
            spaces += after;
        }
        writeln!(out)
    }
}

/// Cuts a text to a number of characters, with `…` at its end.
fn cut(text: &mut String, max_chars: usize) {
    if max_chars == 0 {
        text.clear();
    } else if text.chars().count() > max_chars {
        *text = text.chars().take(max_chars - 1).chain(['…']).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = [&'static str; 3];

    fn table() -> Table<'static, Row> {
        Table::new()
            .text("name", |row: &Row| row[0].to_owned())
            .can_shrink_to(4)
            .number("n", |row| row[1].to_owned())
            .text("", |row| row[2].to_owned())
            .dropped_below(5)
            .text("hidden", |_| "hidden".to_owned())
            .shown_if(false)
    }

    fn written(table: &Table<'_, Row>, rows: &[Row]) -> String {
        let mut out = Vec::new();
        table.write(&mut out, || rows.iter().copied()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_line_up_and_rows_have_no_trailing_spaces() {
        let rows = [["a", "1", "xxx"], ["bbbbb", "1,000", ""]];
        let expected = "name       n\na          1  xxx\nbbbbb  1,000\n";
        assert_eq!(written(&table(), &rows), expected);
    }

    #[test]
    fn a_cell_of_more_than_80_characters_shifts_its_own_row_only() {
        let wide: &str = "w".repeat(100).leak();
        let pad = " ".repeat(80 - 4);
        let expected = format!("name{pad}  n\na   {pad}  1  x\n{wide}  2\n");
        assert_eq!(written(&table(), &[["a", "1", "x"], [wide, "2", ""]]), expected);
    }

    #[test]
    fn columns_shrink_to_the_width_of_a_terminal() {
        let rows = [["a long name", "1", "contents of it"]];
        for (width, expected) in [
            (40, "a long name  1  contents of it"),
            (24, "a long name  1  content…"),
            (20, "a long name  1"),
            (12, "a long…  1"),
            (0, "a l…  1"),
        ] {
            let text = written(&table().fit(Some(width)), &rows);
            assert_eq!(text.lines().last(), Some(expected), "{width}");
        }
    }

    #[test]
    fn a_style_is_put_around_the_text_of_a_cell() {
        let bold = Style::new().bold();
        let table = Table::new()
            .text("", |row: &Row| row[0].to_owned())
            .style(bold)
            .text("", |row| row[1].to_owned())
            .gap(1);
        assert_eq!(written(&table, &[["+", "x", ""]]), format!("{bold}+{bold:#} x\n"));
    }
}
