//! Text tables. A table is a list of columns. Rows are formatted twice, first to measure and then to write, so that a
//! table of a million tensors is never held in memory.

use std::io::{self, Write};

use anstyle::Style;

use super::terminal::{TerminalSize, cut, width, wrap};

/// The maximum width of a column, in terminal columns. A longer cell shifts only the rest of its own row.
const MAX_CELL_WIDTH: usize = 80;

/// The side of a column on which its cells line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Left,
    Right,
}

/// The order in which columns shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShrinkOrder {
    First,
    Normal,
    Last,
}

/// A column of a table with rows of type `R`.
struct Column<'a, R> {
    heading: &'static str,
    alignment: Alignment,
    cell: Box<dyn Fn(&R) -> String + 'a>,
    style: Style,
    /// The number of spaces before the column.
    gap: usize,
    /// The minimum width to truncate the column to; `None` if it is never truncated.
    min_width: Option<usize>,
    /// The minimum width at which the column is shown.
    useful_width: usize,
    order: ShrinkOrder,
    /// True if cells that are too wide wrap to the next line. Only the last column can.
    wraps: bool,
}

/// A table: its columns from left to right, and its maximum width.
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

    /// Adds a right-aligned column of numbers.
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
        self.columns.push(Column {
            heading,
            alignment,
            cell,
            style,
            gap: 2,
            min_width: None,
            useful_width: 0,
            order: ShrinkOrder::Normal,
            wraps: false,
        });
        self
    }

    /// Removes the last column unless `is_shown` is true.
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

    /// Sets the number of spaces before the last column. The default is 2.
    pub(crate) fn gap(self, gap: usize) -> Self {
        self.change_last(|column| column.gap = gap)
    }

    /// Lets [`Table::fit`] truncate the last column to this width.
    pub(crate) fn can_shrink_to(self, min_width: usize) -> Self {
        self.change_last(|column| column.min_width = Some(min_width))
    }

    /// Lets [`Table::fit`] truncate the last column, and drop it below this width.
    pub(crate) fn dropped_below(self, useful_width: usize) -> Self {
        self.can_shrink_to(0).change_last(|column| column.useful_width = useful_width)
    }

    /// Lets [`Table::fit`] drop the last column before it changes other columns.
    pub(crate) fn dropped_first(self) -> Self {
        self.dropped_below(usize::MAX).change_last(|column| column.order = ShrinkOrder::First)
    }

    /// Lets [`Table::fit`] drop the last column after it has changed other columns.
    pub(crate) fn dropped_last(self) -> Self {
        self.dropped_below(usize::MAX).change_last(|column| column.order = ShrinkOrder::Last)
    }

    /// Lets [`Table::fit`] wrap the cells of the last column at words, down to this width.
    pub(crate) fn wrapped_to(self, min_width: usize) -> Self {
        self.can_shrink_to(min_width).change_last(|column| column.wraps = true)
    }

    fn change_last(mut self, change: impl FnOnce(&mut Column<'a, R>)) -> Self {
        self.columns.last_mut().map(change);
        self
    }

    /// Narrows columns until rows fit the terminal. Without a terminal, nothing is truncated.
    pub(crate) fn fit(self, terminal: Option<TerminalSize>) -> Self {
        Self { max_width: terminal.map(|size| size.width), ..self }
    }

    /// Writes the headings and the rows with one tab between cells, for other programs.
    pub(crate) fn write_tsv(
        &self,
        out: &mut impl Write,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let headings: Vec<_> = self.columns.iter().map(|column| column.heading).collect();
        writeln!(out, "{}", headings.join("\t"))?;
        rows.into_iter().try_for_each(|row| {
            let cells: Vec<_> = self.columns.iter().map(|column| (column.cell)(&row)).collect();
            writeln!(out, "{}", cells.join("\t"))
        })
    }

    /// Writes the headings and the rows as comma-separated values, for other programs.
    pub(crate) fn write_csv(
        &self,
        out: &mut impl Write,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(self.columns.iter().map(|column| column.heading))?;
        for row in rows {
            writer.write_record(self.columns.iter().map(|column| (column.cell)(&row)))?;
        }
        writer.flush()
    }

    /// Writes the headings and the rows as a Markdown table.
    pub(crate) fn write_markdown(
        &self,
        out: &mut impl Write,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let columns = || self.columns.iter();
        writeln!(out, "{}", line(columns().map(|column| column.heading.to_owned()).collect()))?;
        let rule = |alignment| if alignment == Alignment::Left { "---" } else { "---:" };
        writeln!(
            out,
            "{}",
            line(columns().map(|column| rule(column.alignment).to_owned()).collect())
        )?;
        rows.into_iter().try_for_each(|row| {
            let cells = columns().map(|column| (column.cell)(&row).replace('|', "\\|"));
            writeln!(out, "{}", line(cells.collect()))
        })
    }

    /// Writes the headings, unless all are empty, and the rows. Calls `rows` twice.
    pub(crate) fn write<I>(&self, out: &mut impl Write, rows: impl Fn() -> I) -> io::Result<()>
    where
        I: IntoIterator<Item = R>,
    {
        let headings = self.columns.iter().map(|column| column.heading);
        let has_headings = headings.clone().any(|heading| !heading.is_empty());
        let mut widths: Vec<_> = headings.map(width).collect();
        for row in rows() {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                let cell = self::width(&(column.cell)(&row));
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

    /// Shrinks the columns in their order, and from right to left within the same order.
    fn shrink(&self, widths: &mut [usize]) {
        let Some(max_width) = self.max_width else { return };
        for order in [ShrinkOrder::First, ShrinkOrder::Normal, ShrinkOrder::Last] {
            for (at, column) in self.columns.iter().enumerate().rev() {
                let Some(min_width) = column.min_width else { continue };
                let excess = self.indent(widths, widths.len()).saturating_sub(max_width);
                if column.order != order || excess == 0 {
                    continue;
                }
                let narrow = widths[at].saturating_sub(excess).max(min_width).min(widths[at]);
                widths[at] = if narrow < column.useful_width { 0 } else { narrow };
            }
        }
    }

    /// Returns the width of the first `columns` columns with their gaps. Empty columns have no gap.
    fn indent(&self, widths: &[usize], columns: usize) -> usize {
        let columns = widths.iter().zip(&self.columns).take(columns).enumerate();
        let columns = columns.filter(|(_, (width, _))| **width > 0);
        columns.map(|(at, (width, column))| width + if at == 0 { 0 } else { column.gap }).sum()
    }

    /// Writes one row without trailing spaces.
    fn write_row(
        &self,
        out: &mut impl Write,
        widths: &[usize],
        cell: impl Fn(&Column<'a, R>) -> (String, Style),
    ) -> io::Result<()> {
        let (mut spaces, mut rest) = (0, Vec::new());
        for (at, (column, &width)) in self.columns.iter().zip(widths).enumerate() {
            let (mut text, style) = cell(column);
            if self.max_width.is_some() && column.wraps {
                let mut lines = wrap(&text, width);
                text = lines.remove(0);
                rest = lines;
            } else if self.max_width.is_some() && column.min_width.is_some() {
                cut(&mut text, width);
            }
            let padding = width.saturating_sub(self::width(&text));
            let (before, after) = match column.alignment {
                Alignment::Left => (0, padding),
                Alignment::Right => (padding, 0),
            };
            spaces += before + if at == 0 || width == 0 { 0 } else { column.gap };
            if !text.is_empty() {
                write!(out, "{:spaces$}{style}{text}{style:#}", "")?;
                spaces = 0;
            }
            spaces += after;
        }
        writeln!(out)?;
        let columns = self.columns.len().saturating_sub(1);
        let gap = self.columns.last().map_or(0, |column| column.gap);
        let indent = self.indent(widths, columns) + gap;
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
            (12, "a long n…  1"),
            (0, "a l…  1"),
        ] {
            let size = TerminalSize { width, height: 24 };
            let text = written(&table().fit(Some(size)), &rows);
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
    fn the_last_column_wraps_after_others_were_dropped() {
        let table = |width| {
            let table = Table::new().text("", |row: &Row| row[0].to_owned());
            let table = table.number("", |row| row[1].to_owned()).dropped_first();
            let table = table.text("", |row| row[2].to_owned()).wrapped_to(6);
            table.fit(Some(TerminalSize { width, height: 24 }))
        };
        let rows = [["name", "1,000", "one two three"], ["n", "1", "four"]];
        for (width, expected) in [
            (26, "name  1,000  one two three\nn         1  four\n"),
            (20, "name  one two three\nn     four\n"),
            (14, "name  one two\n      three\nn     four\n"),
            (1, "name  one\n      two\n      three\nn     four\n"),
        ] {
            assert_eq!(written(&table(width), &rows), expected, "{width}");
        }
    }

    #[test]
    fn other_programs_get_one_tab_between_cells() {
        let mut out = Vec::new();
        table().write_tsv(&mut out, [["a b", "1", ""], ["c", "2", "x"]]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name\tn\t\na b\t1\t\nc\t2\tx\n");
    }

    #[test]
    fn separators_in_cells_are_quoted() {
        let rows = [["a,\"b\"", "1", "x|y"]];
        let (mut csv, mut markdown) = (Vec::new(), Vec::new());
        table().write_csv(&mut csv, rows).unwrap();
        table().write_markdown(&mut markdown, rows).unwrap();
        assert_eq!(String::from_utf8(csv).unwrap(), "name,n,\n\"a,\"\"b\"\"\",1,x|y\n");
        let expected = "| name | n |  |\n| --- | ---: | --- |\n| a,\"b\" | 1 | x\\|y |\n";
        assert_eq!(String::from_utf8(markdown).unwrap(), expected);
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
