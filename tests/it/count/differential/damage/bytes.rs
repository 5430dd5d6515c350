//! Changes to the text of a header, and to the file around it.

use super::{Change, Pick};

pub(in super::super) const OF_TEXT: &[Change<Vec<u8>>] = &[
    replace_byte,
    insert_byte,
    remove_bytes,
    repeat_bytes,
    cut,
    pad_with_nul,
    lead_with_space,
    trail_with_space,
    break_utf8,
];

pub(in super::super) const OF_FILE: &[Change<Vec<u8>>] = &[declare, declare_nearly, cut, append];

/// Bytes with a meaning in JSON, and some that are invalid in it.
const BYTES: &[u8] = b"{}[],:\"\\ \n0129-+.eEunta\0\x1f\x7f";

fn replace_byte(bytes: &mut Vec<u8>, pick: &Pick) {
    let at = pick.place.index(bytes.len() + 1);
    bytes.splice(at..bytes.len().min(at + 1), [*pick.value.get(BYTES)]);
}

fn insert_byte(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.insert(pick.place.index(bytes.len() + 1), *pick.value.get(BYTES));
}

/// Returns a range of up to eight bytes.
fn some_bytes(bytes: &[u8], pick: &Pick) -> std::ops::Range<usize> {
    let start = pick.place.index(bytes.len() + 1);
    start..bytes.len().min(start + 1 + pick.part.index(8))
}

fn remove_bytes(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.drain(some_bytes(bytes, pick));
}

fn repeat_bytes(bytes: &mut Vec<u8>, pick: &Pick) {
    let range = some_bytes(bytes, pick);
    let repeated = bytes[range.clone()].to_vec();
    bytes.splice(range.end..range.end, repeated);
}

fn cut(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.truncate(pick.place.index(bytes.len() + 1));
}

fn pad_with_nul(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.resize(bytes.len() + 1 + pick.value.index(8), 0);
}

fn lead_with_space(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.insert(0, *pick.value.get(b" \t\r\n\x0b"));
}

fn trail_with_space(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.resize(bytes.len() + 1 + pick.part.index(8), *pick.value.get(b"  \n\t"));
}

/// Bytes that are not UTF-8: an invalid byte, or an incomplete character.
fn break_utf8(bytes: &mut Vec<u8>, pick: &Pick) {
    bytes.insert(pick.place.index(bytes.len() + 1), *pick.value.get(b"\xff\xc3\x80\xf0\xed"));
}

/// Declares another length of the header; one of the lengths is the start of a git-LFS pointer.
fn declare(file: &mut Vec<u8>, pick: &Pick) {
    let (limit, pointer) = (100_000_000, u64::from_le_bytes(*b"version "));
    let length = *pick.value.get(&[0, 1, 7, limit, limit + 1, 1 << 63, u64::MAX, pointer]);
    set_length(file, length);
}

fn declare_nearly(file: &mut Vec<u8>, pick: &Pick) {
    let by = *pick.value.get(&[1, 1_u64.wrapping_neg(), 8, 8_u64.wrapping_neg()]);
    let length = file.first_chunk().copied().map_or(0, u64::from_le_bytes);
    set_length(file, length.wrapping_add(by));
}

fn set_length(file: &mut Vec<u8>, length: u64) {
    file.splice(..file.len().min(8), length.to_le_bytes());
}

fn append(file: &mut Vec<u8>, pick: &Pick) {
    file.resize(file.len() + 1 + pick.part.index(8), *pick.value.get(b"\0 }"));
}
