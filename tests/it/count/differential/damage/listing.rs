//! Changes to the list of tensors.

use super::super::tree::{Fields, Node, escaped, quoted};
use super::entry::OF_ENTRY;
use super::{Change, Pick, number, one, value_of};

pub(in super::super) const OF_HEADER: &[Change<Fields>] = &[
    // Changes to an entry are as frequent as changes to the list.
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    change_entry,
    exchange_spans,
    drop_entry,
    move_entry,
    repeat_entry,
    repeat_name,
    empty_tensor,
    giant_tensors,
    entry_as_array,
    replace_entry,
    replace_metadata,
];

const METADATA: [&str; 8] = [
    "null",
    "{}",
    r#"{"a":"1","a":"2"}"#,
    r#"{"a":"1","\u0061":"1"}"#,
    r#"{"a":1}"#,
    r#"{"a":null}"#,
    "[]",
    r#""pt""#,
];

/// Returns the end of the data that the tensors declare.
fn data_end(header: &mut Fields) -> u64 {
    let end = |(_, entry): &mut (String, Node)| match offsets(entry) {
        Some(Node::List(offsets)) => number(offsets.last()?),
        _ => None,
    };
    header.iter_mut().filter_map(end).max().unwrap_or(0)
}

fn offsets(entry: &mut Node) -> Option<&mut Node> {
    match entry {
        Node::Object(fields) => value_of(fields, "data_offsets"),
        _ => None,
    }
}

fn change_entry(header: &mut Fields, pick: &Pick) {
    if let Some((_, Node::Object(fields))) = one(pick.place, header) {
        pick.change.get(OF_ENTRY)(fields, pick);
    }
}

/// Swaps the offsets of two tensors, which is valid if their lengths are equal.
fn exchange_spans(header: &mut Fields, pick: &Pick) {
    let mut span = |at| offsets(&mut one(at, header)?.1).cloned();
    if let (Some(first), Some(second)) = (span(pick.place), span(pick.part)) {
        for (at, span) in [(pick.place, second), (pick.part, first)] {
            *offsets(&mut at.get_mut(header).1).unwrap() = span;
        }
    }
}

fn drop_entry(header: &mut Fields, pick: &Pick) {
    if !header.is_empty() {
        header.remove(pick.place.index(header.len()));
    }
}

fn move_entry(header: &mut Fields, pick: &Pick) {
    if !header.is_empty() {
        let entry = header.remove(pick.place.index(header.len()));
        header.insert(pick.part.index(header.len() + 1), entry);
    }
}

fn repeat_entry(header: &mut Fields, pick: &Pick) {
    if let Some((name, entry)) = one(pick.place, header).cloned() {
        let plain: String = serde_json::from_str(&name).unwrap();
        let name = pick.value.get(&[name, escaped(&plain)]).clone();
        header.insert(pick.part.index(header.len() + 1), (name, entry));
    }
}

fn repeat_name(header: &mut Fields, pick: &Pick) {
    if let Some((name, _)) = one(pick.place, header).cloned() {
        pick.part.get_mut(header).0 = name;
    }
}

/// Adds a tensor without bytes. It is valid at any position, for any length of its other dimensions.
fn empty_tensor(header: &mut Fields, pick: &Pick) {
    let (max, half) = (u64::MAX, 1 << 32);
    let shapes: [&[u64]; 5] = [&[0], &[max, 2, 0], &[0, max, 2], &[half, half, 0, 1], &[max, 0]];
    let dtype = *pick.part.get::<&str>(&["U8", "F4", "F64"]);
    let entry = Node::entry(dtype, pick.value.get::<&[u64]>(&shapes), 0, 0);
    header.insert(pick.place.index(header.len() + 1), (quoted("empty"), entry));
}

/// Adds three to five tensors. The sum of the elements of four fits in 64 bits, that of five does not.
fn giant_tensors(header: &mut Fields, pick: &Pick) {
    const ELEMENTS: u64 = (1 << 62) - (1 << 50);
    for giant in 0..pick.value.index(3) + 3 {
        let begin = data_end(header);
        let Some(end) = begin.checked_add(ELEMENTS / 2) else {
            return;
        };
        header.push((format!("\"giant {giant}\""), Node::entry("F4", &[ELEMENTS], begin, end)));
    }
}

fn entry_as_array(header: &mut Fields, pick: &Pick) {
    if let Some((_, entry)) = one(pick.place, header)
        && let Node::Object(fields) = entry
    {
        *entry = Node::List(fields.iter().map(|(_, value)| value.clone()).collect());
    }
}

fn replace_entry(header: &mut Fields, pick: &Pick) {
    if let Some((_, entry)) = one(pick.place, header) {
        *entry = Node::token(pick.value.get(&["null", "[]", "{}", "7", r#""F32""#]));
    }
}

fn replace_metadata(header: &mut Fields, pick: &Pick) {
    let metadata = Node::token(pick.value.get(&METADATA));
    if let Some(found) = value_of(header, "__metadata__") {
        *found = metadata;
    } else {
        let at = pick.place.index(header.len() + 1);
        header.insert(at, (quoted("__metadata__"), metadata));
    }
}
