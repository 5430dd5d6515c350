//! Changes to the entry of one tensor.

use super::super::tree::{Fields, Node, quoted};
use super::{Change, Pick, number, one, value_of};

pub(in super::super) const OF_ENTRY: &[Change<Fields>] = &[
    replace_dtype,
    dtype_as_object,
    replace_number,
    nudge_offset,
    swap_offsets,
    add_dimension,
    drop_dimension,
    drop_field,
    repeat_field,
    rename_field,
    reverse_fields,
    extra_field,
];

const DTYPES: [&str; 14] = [
    r#""F32""#,
    r#""U8""#,
    r#""F4""#,
    r#""F6_E2M3""#,
    r#""NEW3""#,
    r#""FP4""#,
    r#""E8M0""#,
    r#""UE8""#,
    r#""bf16""#,
    r#""""#,
    "null",
    "7",
    r#"["F32"]"#,
    r#"{"F32":0}"#,
];

const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "7",
    "-1",
    "-0",
    "1.0",
    "1e1",
    "01",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    r#""1""#,
    "null",
    "[]",
    "true",
    "1e999",
];

const EXTRAS: [&str; 7] =
    ["1", r#"[{"a":null}]"#, r#""text""#, "1e999", r#""\ud800""#, "[1,]", r#"{"a":1,"a":2}"#];

const FIELDS: [&str; 3] = ["dtype", "shape", "data_offsets"];

fn list<'a>(entry: &'a mut Fields, name: &str) -> Option<&'a mut Vec<Node>> {
    match value_of(entry, name) {
        Some(Node::List(values)) => Some(values),
        _ => None,
    }
}

fn replace_dtype(entry: &mut Fields, pick: &Pick) {
    if let Some(dtype) = value_of(entry, "dtype") {
        *dtype = Node::token(pick.value.get(&DTYPES));
    }
}

fn dtype_as_object(entry: &mut Fields, pick: &Pick) {
    if let Some(dtype) = value_of(entry, "dtype") {
        let value = Node::token(pick.value.get(&["null", "{}", "[]", "0"]));
        *dtype = Node::Object(vec![(dtype.to_string(), value)]);
    }
}

fn replace_number(entry: &mut Fields, pick: &Pick) {
    let name = if pick.place.index(2) == 0 { "shape" } else { "data_offsets" };
    let numbers = list(entry, name);
    if let Some(found) = numbers.and_then(|numbers| one(pick.part, numbers)) {
        *found = Node::token(pick.value.get(&NUMBERS));
    }
}

fn nudge_offset(entry: &mut Fields, pick: &Pick) {
    let by = *pick.value.get(&[1, 1_u64.wrapping_neg(), 8, 8_u64.wrapping_neg(), 1 << 40]);
    let offset = list(entry, "data_offsets").and_then(|offsets| one(pick.part, offsets));
    if let Some((offset, value)) = offset.and_then(|offset| number(offset).map(|at| (offset, at))) {
        *offset = Node::token(value.wrapping_add(by));
    }
}

fn swap_offsets(entry: &mut Fields, _: &Pick) {
    if let Some(offsets) = list(entry, "data_offsets") {
        offsets.reverse();
    }
}

fn add_dimension(entry: &mut Fields, pick: &Pick) {
    if let Some(shape) = list(entry, "shape") {
        shape.insert(pick.part.index(shape.len() + 1), Node::token(pick.value.get(&NUMBERS)));
    }
}

fn drop_dimension(entry: &mut Fields, pick: &Pick) {
    if let Some(shape) = list(entry, "shape").filter(|shape| !shape.is_empty()) {
        shape.remove(pick.part.index(shape.len()));
    }
}

fn drop_field(entry: &mut Fields, pick: &Pick) {
    if !entry.is_empty() {
        entry.remove(pick.part.index(entry.len()));
    }
}

fn repeat_field(entry: &mut Fields, pick: &Pick) {
    if let Some(field) = one(pick.part, entry).cloned() {
        entry.push(field);
    }
}

fn rename_field(entry: &mut Fields, pick: &Pick) {
    if let Some((name, _)) = one(pick.part, entry) {
        *name = quoted(pick.value.get::<&str>(&FIELDS));
    }
}

fn reverse_fields(entry: &mut Fields, _: &Pick) {
    entry.reverse();
}

fn extra_field(entry: &mut Fields, pick: &Pick) {
    let value = match pick.value.index(EXTRAS.len() + 2) {
        // The parser accepts 127 levels of nesting, and the header itself has two.
        deep @ (0 | 1) => format!("{}{}", "[".repeat(125 + deep), "]".repeat(125 + deep)),
        plain => EXTRAS[plain - 2].to_owned(),
    };
    entry.insert(pick.part.index(entry.len() + 1), (quoted("extra"), Node::Token(value)));
}
