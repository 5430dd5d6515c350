//! The terminal: its colors, its size, and text that fits its width.

use std::io::IsTerminal;
use std::sync::LazyLock;

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default().bold();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default().bold();

/// True if an AI agent reads the output, so that it is complete and plain.
pub(crate) static IS_AGENT: LazyLock<bool> = LazyLock::new(|| {
    let is_set = |name| std::env::var(name).is_ok_and(|value| !value.trim().is_empty());
    ["AI_AGENT", "AGENT"].into_iter().any(is_set)
});

/// The option of the subcommands that print text with colors. `badge` has another `--color`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ColorArgs {
    /// When to use colors: auto, always or never [default: auto]
    #[arg(long, hide_short_help = true, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Option<ColorChoice>,
}

/// Applies a choice to stdout and stderr. By default, `anstream` removes styles from text that is not written to a
/// terminal.
pub(crate) fn apply_color(choice: Option<ColorChoice>) {
    let choice = match choice {
        Some(ColorChoice::Always) => anstream::ColorChoice::Always,
        Some(ColorChoice::Never) => anstream::ColorChoice::Never,
        _ if *IS_AGENT => anstream::ColorChoice::Never,
        // The environment decides.
        _ => return,
    };
    choice.write_global();
}

/// The size of a terminal, in columns and lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalSize {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl TerminalSize {
    /// Returns the size of the terminal of an output; `None` if it is not a terminal.
    pub(crate) fn of(stream: &impl IsTerminal) -> Option<Self> {
        if *IS_AGENT || !stream.is_terminal() {
            return None;
        }
        let size = terminal_size::terminal_size();
        let (width, height) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
        Some(Self { width: width.into(), height: height.into() })
    }
}

/// Returns the number of terminal columns of a text. Chinese characters and emoji take two, styles none.
pub(crate) fn width(text: &str) -> usize {
    strip_str(text).map(UnicodeWidthStr::width).sum()
}

/// Truncates a text to a number of columns: replaces its middle with `…`, and keeps most of the end, where names differ. The
/// lines of a tree before a name remain.
pub(crate) fn truncate(text: &mut String, max_width: usize) {
    if width(text) <= max_width {
        return;
    }
    let name = text.find("─ ").map_or(0, |at| at + "─ ".len());
    let (lines, name) =
        if width(&text[..name]) < max_width { text.split_at(name) } else { ("", &**text) };
    let Some(free) = max_width.checked_sub(width(lines) + 1) else { return text.clear() };
    let end: Vec<_> = fitting(name.chars().rev(), free * 2 / 3).collect();
    let end: String = end.into_iter().rev().collect();
    let start: String = fitting(name.chars(), free - width(&end)).collect();
    *text = format!("{lines}{start}…{end}");
}

/// Truncates a text to a number of columns: replaces its end with `…`, because details often come last.
pub(crate) fn truncate_end(text: &mut String, max_width: usize) {
    if width(text) <= max_width {
        return;
    }
    let Some(free) = max_width.checked_sub(1) else { return text.clear() };
    let start: String = fitting(text.chars(), free).collect();
    *text = format!("{}…", start.trim_end_matches([' ', ',']));
}

/// Returns the first characters that fit a number of columns.
fn fitting(chars: impl Iterator<Item = char>, mut columns: usize) -> impl Iterator<Item = char> {
    chars.take_while(move |c| {
        let rest = columns.checked_sub(c.width().unwrap_or(0));
        rest.map(|rest| columns = rest).is_some()
    })
}

/// Wraps a text at words into lines of at most `max_width` columns. Longer words get their own line.
pub(crate) fn wrap(text: &str, max_width: usize) -> Vec<String> {
    let mut lines = Vec::<String>::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= max_width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Wraps a sentence after a label of `label` columns. The following lines are indented by four.
pub(crate) fn wrap_after_label(label: usize, text: &str, terminal: Option<TerminalSize>) -> String {
    const INDENT: usize = 4;

    let Some(size) = terminal else { return text.to_owned() };
    let blank = "\u{a0}".repeat(label.saturating_sub(INDENT));
    let lines = wrap(&format!("{blank}{text}"), size.width.saturating_sub(INDENT));
    lines.join(&format!("\n{:INDENT$}", ""))[blank.len()..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_its_width_on_the_terminal() {
        for (text, max_width, expected) in [
            ("weights", 7, "weights"),
            ("weights", 6, "we…hts"),
            ("Q4_K_M and Q4_K_S", 10, "Q4_…Q4_K_S"),
            ("模型权重", 8, "模型权重"),
            ("模型权重", 7, "模…权重"),
            ("模型权重", 6, "模…重"),
            ("🤗🤗", 3, "🤗…"),
            ("│  ├─ gate_up_proj", 12, "│  ├─ ga…roj"),
            ("│  ├─ gate_up_proj", 5, "│ …oj"),
            ("x", 0, ""),
        ] {
            let mut truncated = text.to_owned();
            truncate(&mut truncated, max_width);
            assert_eq!(truncated, expected, "{text} {max_width}");
            assert!(width(&truncated) <= max_width);
        }
    }

    #[test]
    fn sentences_after_a_label_are_indented() {
        let terminal = Some(TerminalSize { width: 17, height: 24 });
        let text = format!("warning: {}", wrap_after_label(9, "one two three four", terminal));
        assert_eq!(text, "warning: one two\n    three four");
        assert_eq!(wrap_after_label(9, "one two three four", None), "one two three four");
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("模型 权重 x", 9), ["模型 权重", "x"]);
        assert_eq!(wrap("a-word-that-is-too-long b", 5), ["a-word-that-is-too-long", "b"]);
        assert_eq!(wrap("", 5), [""]);
        let styled = format!("{RED}one{RED:#} two three");
        assert_eq!(wrap(&styled, 7), [format!("{RED}one{RED:#} two"), "three".to_owned()]);
    }
}
