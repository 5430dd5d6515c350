//! Updates the data card of a published data set, and keeps what people wrote into it.

/// The parts of the text that a publication replaces. Each is between two comments: `<!-- tables… -->` at the start of a
/// line, and `<!-- /tables -->`.
const PARTS: [&str; 3] = ["tables", "provenance", LICENSE];

/// The part, and the key of the metadata, with the license of the counts. They change together.
const LICENSE: &str = "license";

/// The key of the metadata with the tables, which a publication replaces.
const CONFIGS: &str = "configs";

/// The configurations that a publication may write. People add others, such as tables that they derive.
const TABLES: [&str; 4] = ["repos", "files", "runs", "tensors"];

/// The line before and after the metadata.
const FENCE: &str = "---\n";

/// Returns an existing card with the values of a new one. Of the metadata, the tables and the `changed` keys are replaced,
/// and missing keys are added; all others belong to people, such as tags. A part whose comments were removed is left out: people write
/// about it themselves. A card without metadata gets them, because the Hub finds the tables through them.
pub(super) fn update(existing: &str, new: &str, changed: &[&str]) -> String {
    let is_windows = existing.contains("\r\n");
    let existing = existing.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let (old_keys, mut text) = split_metadata(&existing);
    let (new_keys, new_text) = split_metadata(new);
    let owned = |(key, lines): (_, &str)| (key, lines.to_owned());
    let mut keys: Vec<_> = entries(old_keys).into_iter().map(owned).collect();
    for (key, lines) in entries(new_keys) {
        match keys.iter_mut().find(|(old, _)| *old == key) {
            Some((_, old)) if key == CONFIGS => *old = lines.to_owned() + &other_configs(old),
            Some((_, old)) if changed.contains(&key) => lines.clone_into(old),
            Some(_) => {}
            None => keys.push((key, lines.to_owned())),
        }
    }
    let metadata: String = keys.into_iter().map(|(_, lines)| lines).collect();
    let mut updated = String::new();
    while let Some((before, name, rest)) = next_part(text) {
        updated += before;
        let is_replaced = name != LICENSE || changed.contains(&LICENSE);
        let new = if is_replaced { part(new_text, name) } else { None };
        updated += new.or_else(|| part(text, name)).map_or("", |(_, part)| part);
        text = rest;
    }
    let card = format!("{FENCE}{metadata}{FENCE}{updated}{text}");
    if is_windows { card.replace('\n', "\r\n") } else { card }
}

/// Returns the configurations that no publication writes, without indentation.
fn other_configs(configs: &str) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut indent = 0;
    for line in configs.split_inclusive('\n').skip(1) {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        if line[spaces..].starts_with("- ") && (items.is_empty() || spaces <= indent) {
            indent = spaces;
            items.push(String::new());
        }
        let Some(item) = items.last_mut() else { continue };
        *item += &line[spaces.min(indent)..];
    }
    let name = |item: &str| {
        let field = |line: &str| {
            let value = line.trim_start_matches(['-', ' ']).strip_prefix("config_name:")?;
            Some(value.trim().trim_matches(['"', '\'']).to_owned())
        };
        item.lines().find_map(field)
    };
    let is_other = |item: &String| name(item).is_some_and(|name| !TABLES.contains(&&*name));
    items.into_iter().filter(is_other).collect()
}

/// Splits the metadata from the text after them. They are empty if the card has none.
fn split_metadata(card: &str) -> (&str, &str) {
    let Some(inner) = card.strip_prefix(FENCE) else { return ("", card) };
    if let Some(text) = inner.strip_prefix(FENCE) {
        return ("", text);
    }
    let Some(end) = inner.find(&format!("\n{FENCE}")) else { return ("", card) };
    (&inner[..=end], &inner[end + 1 + FENCE.len()..])
}

/// Returns the keys of the metadata with their lines. A value continues in lines that begin with a space, a `-` or a `#`,
/// and in empty ones.
fn entries(metadata: &str) -> Vec<(&str, &str)> {
    let is_key = |line: &str| !line.starts_with([' ', '\t', '-', '#', '\n']) && line.contains(':');
    let mut starts: Vec<_> = Vec::new();
    let mut at = 0;
    for line in metadata.split_inclusive('\n') {
        if is_key(line) || at == 0 {
            starts.push(at);
        }
        at += line.len();
    }
    starts.push(metadata.len());
    let entry = |range: &[usize]| {
        let lines = &metadata[range[0]..range[1]];
        (lines.split(':').next().unwrap_or_default().trim(), lines)
    };
    starts.windows(2).map(entry).collect()
}

/// Returns the text before the next part, the name of the part, and the text after it.
fn next_part(text: &str) -> Option<(&str, &'static str, &str)> {
    let found = PARTS.into_iter().filter_map(|name| {
        let (start, part) = part(text, name)?;
        Some((start, name, start + part.len()))
    });
    let (start, name, end) = found.min()?;
    Some((&text[..start], name, &text[end..]))
}

/// Returns the position of a part, and the part with its comments. The last opening comment counts, because people may
/// mention it in a sentence.
fn part<'a>(text: &'a str, name: &str) -> Option<(usize, &'a str)> {
    let (open, close) = (format!("<!-- {name}"), format!("<!-- /{name} -->"));
    let starts = text.match_indices(&open).map(|(start, _)| start);
    let starts: Vec<_> =
        starts.filter(|start| *start == 0 || text[..*start].ends_with('\n')).collect();
    let first = *starts.first()?;
    let end = first + text[first..].find(&close)?;
    let start = *starts.iter().rfind(|start| **start < end)?;
    Some((start, &text[start..end + close.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "---\npretty_name: \"T\"\nlicense: \"cc0-1.0\"\nconfigs:\n- config_name: repos\n  \
        data_files: repos.parquet\n---\n\n# T\n\n<!-- tables: x -->\n| 2 |\n<!-- /tables -->\n\nText\n\
        <!-- provenance: x -->\nnew\n<!-- /provenance -->\n";

    #[test]
    fn a_card_that_nobody_changed_becomes_the_new_one() {
        let old = NEW.replace("| 2 |", "| 1 |").replace("new\n", "old\n");
        assert_eq!(update(&old, NEW, &[]), NEW);
        assert_eq!(update(NEW, NEW, &[]), NEW);
        assert_eq!(update(&old.replace('\n', "\r\n"), NEW, &[]), NEW.replace('\n', "\r\n"));
    }

    #[test]
    fn what_people_wrote_is_kept() {
        let old = "---\ntags:\n- census\n# a comment\npretty_name: Ours\nconfigs:\n- config_name: old\nlanguage: en\n---\n\
            # Ours\n\nOur words.\n<!-- provenance -->old<!-- /provenance -->\nMore\n<!-- tables -->\nold\n<!-- /tables -->\n\nEnd";
        let expected = "---\ntags:\n- census\n# a comment\npretty_name: Ours\nconfigs:\n- config_name: repos\n  data_files: \
            repos.parquet\n- config_name: old\nlanguage: en\nlicense: \"cc0-1.0\"\n---\n# Ours\n\nOur words.\n<!-- provenance: x -->\nnew\n\
            <!-- /provenance -->\nMore\n<!-- tables: x -->\n| 2 |\n<!-- /tables -->\n\nEnd";
        assert_eq!(update(old, NEW, &[]), expected);
        let titled = expected.replace("pretty_name: Ours", "pretty_name: \"T\"");
        assert_eq!(update(old, NEW, &["pretty_name"]), titled);
    }

    /// People add tables that they derive from the census.
    #[test]
    fn other_configurations_are_kept() {
        let old = "configs:\n  - config_name: tensors\n    data_files: tensors.parquet\n  - data_files:\n    - x.parquet\n    \
            config_name: 'by owner'\n  - config_name: \"files\"\n";
        let other = "- data_files:\n  - x.parquet\n  config_name: 'by owner'\n";
        assert_eq!(other_configs(old), other);
        let updated = update(&format!("---\n{old}---\n"), NEW, &[]);
        assert!(updated.contains(&format!("data_files: repos.parquet\n{other}")), "{updated}");
        assert_eq!(update(&updated, NEW, &[]), updated);
    }

    #[test]
    fn a_comment_in_a_sentence_is_not_a_part() {
        for mention in ["`<!-- tables` begins the tables.\n", "<!-- tables are below\n\n"] {
            let old = NEW.replace("# T\n", &format!("# T\n\n{mention}"));
            assert_eq!(update(&old.replace("| 2 |", "| 1 |"), NEW, &[]), old);
        }
    }

    /// The sentence about the license must not contradict the metadata.
    #[test]
    fn the_license_changes_in_the_text_and_the_metadata() {
        let card = |id: &str| {
            NEW.replace("cc0-1.0", id) + &format!("<!-- license: x -->\n{id}\n<!-- /license -->\n")
        };
        assert_eq!(update(&card("mit"), &card("cc0-1.0"), &["license"]), card("cc0-1.0"));
        assert_eq!(update(&card("mit"), &card("cc0-1.0"), &[]), card("mit"));
    }

    #[test]
    fn a_card_without_metadata_or_parts_keeps_its_text() {
        for text in [
            "# Ours\n\n<!-- tables\nnever closed\n",
            "",
            "<!-- /tables --> <!-- tables -->",
            "---\nno end",
        ] {
            let updated = update(text, NEW, &[]);
            assert!(updated.ends_with(&format!("---\n{text}")), "{updated}");
            assert!(updated.starts_with("---\npretty_name: \"T\"\n"), "{updated}");
            assert_eq!(update(&updated, NEW, &[]), updated);
        }
    }
}
