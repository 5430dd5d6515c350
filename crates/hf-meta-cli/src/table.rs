//! Text tables. A table is a list of columns. Rows are formatted twice, first to measure and then to write, so that a
//! table of a million tensors is never held in memory.

use std::io::{self, Write};

use super::terminal::{truncate, truncate_end, width, wrap};

/// The number of spaces between two columns.
const GAP: usize = 2;

/// The maximum width of a column, in terminal columns. A longer cell shifts only the rest of its row.
const MAX_CELL_WIDTH: usize = 80;

/// The change of a column in a table that is wider than the terminal. First columns are narrowed from right to left, and
/// then they are dropped from right to left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shrink {
    /// The column never changes.
    Never,
    /// Its cells are truncated, down to this width.
    TruncateTo(usize),
    /// Its cells wrap at words, down to this width. Only the last column can.
    WrapTo(usize),
    /// The column is dropped if others cannot be narrowed enough.
    Drop,
}

/// The formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// A human-readable table
    Table,
    /// Tab-separated values
    Tsv,
    /// Comma-separated values
    Csv,
    /// A Markdown table
    Md,
    /// One line of JSON per row
    Json,
}

impl OutputFormat {
    /// Formats a row for other programs.
    fn line(self, cells: &[String]) -> String {
        match self {
            Self::Csv => cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(","),
            Self::Md => {
                let cells: Vec<_> = cells.iter().map(|cell| markdown(cell)).collect();
                format!("| {} |", cells.join(" | "))
            }
            _ => cells.join("\t"),
        }
    }
}

/// Quotes a cell of comma-separated values if it is necessary (RFC 4180).
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Escapes the markup in a cell of Markdown, including the addresses that become links on their own.
fn markdown(cell: &str) -> String {
    let escaped = with_backslashes(cell, r"\`*_[]<>&|~$@");
    escaped.replace("://", "\\://").replace("www.", "www\\.")
}

/// Adds a backslash before each special character.
pub(crate) fn with_backslashes(text: &str, special: &str) -> String {
    let escaped = |c| special.contains(c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escaped).collect()
}

/// A function that formats the cell of a row of type `R`.
type Cell<'a, R> = Box<dyn Fn(&R) -> String + 'a>;

/// A column of a table with rows of type `R`.
struct Column<'a, R> {
    heading: &'static str,
    /// True if the cells line up on the right.
    is_number: bool,
    cell: Cell<'a, R>,
    shrink: Shrink,
}

/// Returns the width of columns with the gaps between them. Empty columns have no gap.
fn width_of(columns: &[usize]) -> usize {
    let columns = columns.iter().enumerate().filter(|(_, width)| **width > 0);
    columns.map(|(index, width)| width + if index == 0 { 0 } else { GAP }).sum()
}

/// The columns of a table from left to right.
pub(crate) struct Table<'a, R> {
    columns: Vec<Column<'a, R>>,
}

impl<'a, R> Table<'a, R> {
    pub(crate) fn new() -> Self {
        Self { columns: Vec::new() }
    }

    /// Adds a column of text.
    pub(crate) fn text(self, heading: &'static str, cell: impl Fn(&R) -> String + 'a) -> Self {
        self.column(heading, false, Box::new(cell))
    }

    /// Adds a right-aligned column of numbers.
    pub(crate) fn number(self, heading: &'static str, cell: impl Fn(&R) -> String + 'a) -> Self {
        self.column(heading, true, Box::new(cell))
    }

    /// Adds a column of numbers that a narrow terminal does not show.
    pub(crate) fn optional_number(
        self,
        heading: &'static str,
        cell: impl Fn(&R) -> String + 'a,
    ) -> Self {
        self.number(heading, cell).shrink(Shrink::Drop)
    }

    fn column(mut self, heading: &'static str, is_number: bool, cell: Cell<'a, R>) -> Self {
        self.columns.push(Column { heading, is_number, cell, shrink: Shrink::Never });
        self
    }

    /// Removes the last column unless `is_shown` is true.
    pub(crate) fn shown_if(mut self, is_shown: bool) -> Self {
        if !is_shown {
            self.columns.pop();
        }
        self
    }

    /// Sets the change of the last column in a narrow terminal.
    pub(crate) fn shrink(mut self, shrink: Shrink) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.shrink = shrink;
        }
        self
    }

    /// Writes the headings and the rows for other programs.
    pub(crate) fn write_rows(
        &self,
        out: &mut dyn Write,
        format: OutputFormat,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        write!(out, "{}", self.headings(format))?;
        rows.into_iter().try_for_each(|row| writeln!(out, "{}", self.line(format, &row)))
    }

    /// Formats the headings for other programs, with line ends. Returns an empty text if all headings are empty.
    pub(crate) fn headings(&self, format: OutputFormat) -> String {
        if self.columns.iter().all(|column| column.heading.is_empty()) {
            return String::new();
        }
        let headings = self.cells(format, |column| column.heading.to_owned());
        if format != OutputFormat::Md {
            return headings + "\n";
        }
        let alignments =
            self.cells(format, |column| if column.is_number { "---:" } else { "---" }.to_owned());
        format!("{headings}\n{alignments}\n")
    }

    /// Formats a row for other programs.
    pub(crate) fn line(&self, format: OutputFormat, row: &R) -> String {
        self.cells(format, |column| (column.cell)(row))
    }

    fn cells(&self, format: OutputFormat, cell: impl Fn(&Column<'a, R>) -> String) -> String {
        let cells: Vec<_> = self.columns.iter().map(cell).collect();
        format.line(&cells)
    }

    /// Writes the headings, unless all are empty, and the rows. Narrows columns until the rows fit `max_width`;
    /// without it, nothing is truncated. Calls `rows` twice.
    pub(crate) fn write<I: IntoIterator<Item = R>>(
        &self,
        out: &mut dyn Write,
        max_width: Option<usize>,
        rows: impl Fn() -> I,
    ) -> io::Result<()> {
        let headings = self.columns.iter().map(|column| column.heading);
        let has_headings = headings.clone().any(|heading| !heading.is_empty());
        let mut widths: Vec<_> = headings.map(width).collect();
        for row in rows() {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                let cell = self::width(&(column.cell)(&row));
                *width = cell.min(MAX_CELL_WIDTH).max(*width);
            }
        }
        if let Some(max_width) = max_width {
            self.shrink_to(max_width, &mut widths);
        }
        let fits = max_width.is_some();
        if has_headings {
            self.write_row(out, &widths, fits, |column| column.heading.to_owned())?;
        }
        rows()
            .into_iter()
            .try_for_each(|row| self.write_row(out, &widths, fits, |column| (column.cell)(&row)))
    }

    /// Narrows columns, and drops others if that is not enough. Narrowed columns get the space that is left.
    fn shrink_to(&self, max_width: usize, widths: &mut [usize]) {
        let needed = widths.to_vec();
        for is_narrowing in [true, false] {
            for (index, column) in self.columns.iter().enumerate().rev() {
                let excess = width_of(widths).saturating_sub(max_width);
                let width = &mut widths[index];
                match column.shrink {
                    Shrink::TruncateTo(min_width) | Shrink::WrapTo(min_width) if is_narrowing => {
                        *width = width.saturating_sub(excess).max(min_width).min(*width);
                    }
                    Shrink::Drop if !is_narrowing && excess > 0 => *width = 0,
                    _ => {}
                }
            }
        }
        for (index, needed) in needed.into_iter().enumerate().filter(|(_, needed)| *needed > 0) {
            let free = max_width.saturating_sub(width_of(widths));
            if widths[index] > 0 {
                widths[index] = needed.min(widths[index] + free);
            }
        }
    }

    /// Writes one row without trailing spaces. If it `fits` a terminal, long cells are truncated or wrapped.
    fn write_row(
        &self,
        out: &mut dyn Write,
        widths: &[usize],
        fits: bool,
        cell: impl Fn(&Column<'a, R>) -> String,
    ) -> io::Result<()> {
        let (mut spaces, mut rest) = (0, Vec::new());
        for (index, (column, &width)) in self.columns.iter().zip(widths).enumerate() {
            let mut text = cell(column);
            match column.shrink {
                _ if !fits => {}
                Shrink::Never => {}
                Shrink::WrapTo(_) => {
                    rest = wrap(&text, width);
                    text = rest.remove(0);
                }
                // The last column contains details, which often come last.
                Shrink::TruncateTo(_) if index + 1 == self.columns.len() => {
                    truncate_end(&mut text, width);
                }
                _ => truncate(&mut text, width),
            }
            let padding = width.saturating_sub(self::width(&text));
            let (before, after) = if column.is_number { (padding, 0) } else { (0, padding) };
            spaces += before + if index == 0 || width == 0 { 0 } else { GAP };
            if !text.is_empty() {
                write!(out, "{:spaces$}{text}", "")?;
                spaces = 0;
            }
            spaces += after;
        }
        writeln!(out)?;
        let columns = self.columns.len().saturating_sub(1);
        let indent = width_of(&widths[..columns]) + GAP;
        rest.iter().try_for_each(|line| writeln!(out, "{:indent$}{line}", ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = [&'static str; 3];

    fn table() -> Table<'static, Row> {
        Table::new()
            .text("name", |row: &Row| row[0].to_owned())
            .shrink(Shrink::TruncateTo(4))
            .number("n", |row| row[1].to_owned())
            .text("", |row| row[2].to_owned())
            .shrink(Shrink::Drop)
            .text("hidden", |_| "hidden".to_owned())
            .shown_if(false)
    }

    fn fitted(table: &Table<'_, Row>, rows: &[Row], max_width: Option<usize>) -> String {
        let mut out = Vec::new();
        table.write(&mut out, max_width, || rows.iter().copied()).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn written(table: &Table<'_, Row>, rows: &[Row]) -> String {
        fitted(table, rows, None)
    }

    #[test]
    fn cells_line_up_and_rows_have_no_trailing_spaces() {
        let rows = [["a", "1", "xxx"], ["bbbbb", "1,000", ""]];
        let expected = "name       n\na          1  xxx\nbbbbb  1,000\n";
        assert_eq!(written(&table(), &rows), expected);
    }

    #[test]
    fn long_cells_shift_only_their_own_row() {
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
            (24, "a …me  1  contents of it"),
            (23, "a…me  1  contents of it"),
            (22, "a long name  1"),
            (12, "a l… name  1"),
            (0, "a…me  1"),
        ] {
            let text = fitted(&table(), &rows, Some(width));
            assert_eq!(text.lines().last(), Some(expected), "{width}");
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [["模型", "1", "x"], ["weights", "2", ""], ["🤗", "3", "x"]];
        let expected = "name     n\n模型     1  x\nweights  2\n🤗       3  x\n";
        assert_eq!(written(&table(), &rows), expected);
    }

    #[test]
    fn the_last_column_wraps_before_others_are_dropped() {
        let table = Table::new().text("", |row: &Row| row[0].to_owned());
        let table = table.number("", |row| row[1].to_owned()).shrink(Shrink::Drop);
        let table = table.text("", |row| row[2].to_owned()).shrink(Shrink::WrapTo(6));
        let rows = [["name", "1,000", "one two three"], ["n", "1", "four"]];
        for (width, expected) in [
            (26, "name  1,000  one two three\nn         1  four\n"),
            (20, "name  1,000  one two\n             three\nn         1  four\n"),
            (14, "name  one two\n      three\nn     four\n"),
            (1, "name  one\n      two\n      three\nn     four\n"),
        ] {
            assert_eq!(fitted(&table, &rows, Some(width)), expected, "{width}");
        }
    }

    #[test]
    fn details_in_the_last_column_are_truncated_at_their_end() {
        let table = Table::new().text("", |row: &Row| row[0].to_owned());
        let table = table.text("", |row| row[2].to_owned()).shrink(Shrink::TruncateTo(4));
        let rows = [["name", "", "one, two, three"]];
        for (width, expected) in [(21, "one, two, three"), (15, "one, two…"), (9, "one…")] {
            assert_eq!(fitted(&table, &rows, Some(width)), format!("name  {expected}\n"));
        }
    }

    #[test]
    fn tsv_has_one_tab_between_cells() {
        let mut out = Vec::new();
        let rows = [["a b", "1", ""], ["c", "2", "x"]];
        table().write_rows(&mut out, OutputFormat::Tsv, rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name\tn\t\na b\t1\t\nc\t2\tx\n");
    }

    #[test]
    fn separators_in_cells_are_quoted() {
        let rows = [["a,\"b\"", "1", "x|y"]];
        let (mut csv, mut markdown) = (Vec::new(), Vec::new());
        table().write_rows(&mut csv, OutputFormat::Csv, rows).unwrap();
        table().write_rows(&mut markdown, OutputFormat::Md, rows).unwrap();
        assert_eq!(String::from_utf8(csv).unwrap(), "name,n,\n\"a,\"\"b\"\"\",1,x|y\n");
        let expected = "| name | n |  |\n| --- | ---: | --- |\n| a,\"b\" | 1 | x\\|y |\n";
        assert_eq!(String::from_utf8(markdown).unwrap(), expected);
    }

    #[test]
    fn markup_in_cells_of_markdown_is_escaped() {
        for (cell, escaped) in [
            ("<img src=x>", r"\<img src=x\>"),
            ("![x](javascript:y)", r"!\[x\](javascript:y)"),
            ("**a** _b_ `c` ~d~", r"\*\*a\*\* \_b\_ \`c\` \~d\~"),
            (r"\<b>", r"\\\<b\>"),
            ("&lt;$x$", r"\&lt;\$x\$"),
            ("https://www.x a@b.c", r"https\://www\.x a\@b.c"),
        ] {
            assert_eq!(OutputFormat::Md.line(&[cell.to_owned()]), format!("| {escaped} |"));
        }
    }

    #[test]
    fn a_style_takes_no_space() {
        let table = Table::new()
            .text("", |row: &Row| format!("\u{1b}[1m{}\u{1b}[0m", row[0]))
            .text("", |row| row[1].to_owned());
        let expected = "\u{1b}[1m+\u{1b}[0m   x\n\u{1b}[1m++\u{1b}[0m  y\n";
        assert_eq!(written(&table, &[["+", "x", ""], ["++", "y", ""]]), expected);
    }
}
