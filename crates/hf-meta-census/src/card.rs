//! Updates the data card of a published data set, and keeps what people wrote into it.

/// The parts of the text that a publication replaces. Each is between two comments: `<!-- tables… -->` and
/// `<!-- /tables -->`.
const PARTS: [&str; 2] = ["tables", "provenance"];

/// The key of the metadata with the tables, which a publication replaces.
const CONFIGS: &str = "configs";

/// The line before and after the metadata.
const FENCE: &str = "---\n";

/// Returns an existing card with the values of a new one. Of the metadata, the tables and the `changed` keys are replaced,
/// and missing keys are added; all others belong to people, such as tags. A part whose comments were removed is left out: people write
/// about it themselves. A card without metadata gets them, because the Hub finds the tables through them.
pub(super) fn update(existing: &str, new: &str, changed: &[&str]) -> String {
    let existing = existing.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let (old_keys, mut text) = split_metadata(&existing);
    let (new_keys, new_text) = split_metadata(new);
    let (mut keys, new_keys) = (entries(old_keys), entries(new_keys));
    for (key, lines) in new_keys {
        match keys.iter_mut().find(|(old, _)| *old == key) {
            Some((_, old)) if key == CONFIGS || changed.contains(&key) => *old = lines,
            Some(_) => {}
            None => keys.push((key, lines)),
        }
    }
    let metadata: String = keys.into_iter().map(|(_, lines)| lines).collect();
    let mut updated = String::new();
    while let Some((before, name, rest)) = next_part(text) {
        updated += before;
        let part = part(new_text, name).or_else(|| part(text, name)).unwrap_or_default();
        updated += part;
        text = rest;
    }
    format!("{FENCE}{metadata}{FENCE}{updated}{text}")
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
        let start = text.find(&format!("<!-- {name}"))?;
        Some((start, name, start + part(text, name)?.len()))
    });
    let (start, name, end) = found.min()?;
    Some((&text[..start], name, &text[end..]))
}

/// Returns a part with its comments.
fn part<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("<!-- {name}"))?;
    let end = format!("<!-- /{name} -->");
    let length = text[start..].find(&end)? + end.len();
    Some(&text[start..start + length])
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
        assert_eq!(update(&old.replace('\n', "\r\n"), NEW, &[]), NEW);
    }

    #[test]
    fn what_people_wrote_is_kept() {
        let old = "---\ntags:\n- census\n# a comment\npretty_name: Ours\nconfigs:\n- config_name: old\nlanguage: en\n---\n\
            # Ours\n\nOur words.\n<!-- provenance -->old<!-- /provenance -->\nMore\n<!-- tables -->\nold\n<!-- /tables -->\n\nEnd";
        let expected = "---\ntags:\n- census\n# a comment\npretty_name: Ours\nconfigs:\n- config_name: repos\n  data_files: \
            repos.parquet\nlanguage: en\nlicense: \"cc0-1.0\"\n---\n# Ours\n\nOur words.\n<!-- provenance: x -->\nnew\n\
            <!-- /provenance -->\nMore\n<!-- tables: x -->\n| 2 |\n<!-- /tables -->\n\nEnd";
        assert_eq!(update(old, NEW, &[]), expected);
        let titled = expected.replace("pretty_name: Ours", "pretty_name: \"T\"");
        assert_eq!(update(old, NEW, &["pretty_name"]), titled);
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
