//! Interprets a pickle without calling anything.

use std::collections::BTreeSet;
use std::iter::{once, successors};

use memchr::memchr;

use super::values::{
    Argument, ELEMENT_TYPES, ElementType, NodeKind, PickleValue, spend, too_large,
};
use crate::base::sort::sort_by;
use crate::formats::buffer::Stop;
use crate::formats::{HeaderError, HeaderErrorKind};

/// The maximum depth of the stack. Picklers write collections in batches of 1,000.
const MAX_STACK: usize = 1 << 18;

/// The maximum number of distinct imports.
const MAX_IMPORTS: usize = 1_000;

/// The maximum length of the name of an import in bytes.
const MAX_NAME: usize = 256;

/// The maximum length of a decoded text in bytes. It limits the time to find the end of a line.
const MAX_TEXT: usize = 520;

type Result<T> = std::result::Result<T, Stop>;

/// An interpreter of pickles that follow one another.
///
/// A value takes four bytes, because a checkpoint of 100,000 tensors has millions. All nodes are in one list: a header
/// with the kind and the number of values, and the values. Values that are added later are further nodes.
#[derive(Debug, Default)]
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte.
    pub(super) at: usize,
    /// The offset of the last opcode.
    pub(super) opcode_at: usize,
    pub(super) imports: BTreeSet<String>,
    stack: Vec<PickleValue>,
    memo: Vec<PickleValue>,
    nodes: Vec<PickleValue>,
    /// The nodes with values that were added to other nodes, sorted at the end of a pickle.
    added: Vec<(PickleValue, PickleValue)>,
    /// The number of bytes that nodes and memo may still take.
    pub(super) free_memory: usize,
}

impl<'a> Pickle<'a> {
    /// Creates an interpreter whose nodes and memo take at most `memory` bytes.
    pub(super) fn new(bytes: &'a [u8], memory: usize) -> Self {
        // The maximum for each byte, because growth would copy the list. Unused memory is never touched.
        let values = (memory / size_of::<PickleValue>()).min(bytes.len().saturating_mul(2));
        Self { bytes, nodes: Vec::with_capacity(values), free_memory: memory, ..Self::default() }
    }

    /// Interprets the next pickle and returns its value.
    pub(super) fn load(&mut self) -> Result<PickleValue> {
        loop {
            if let Some(value) = self.step()? {
                self.free_memory += self.memo.len() * size_of::<PickleValue>();
                (self.stack, self.memo) = (Vec::new(), Vec::new());
                sort_by(&mut self.added, Ord::cmp);
                return Ok(value);
            }
        }
    }

    /// Returns the opcode and the argument of a literal. A long argument is truncated.
    fn literal(&self, value: PickleValue) -> Option<(u8, &'a [u8])> {
        let (opcode, rest) = self.bytes.get(value.as_literal()?..)?.split_first()?;
        let clip = |text: &'a [u8], length: usize| &text[..length.min(text.len()).min(MAX_TEXT)];
        let argument = match Argument::of(*opcode)? {
            Argument::Bytes(length) => clip(rest, length),
            Argument::Line => first_line(clip(rest, usize::MAX)).0,
            Argument::Sized(bytes) => clip(&rest[bytes..], length(number(&rest[..bytes]))),
        };
        Some((*opcode, argument))
    }

    /// Returns a text or bytes; `None` for any other value.
    fn text_of(&self, value: PickleValue) -> Option<&'a [u8]> {
        match self.literal(value)? {
            // Without the quotes.
            (b'S', [_, text @ .., _]) => Some(text),
            (b'S' | b'V' | b'U' | b'C' | b'T' | b'X' | b'B' | 0x8c..=0x8e | 0x96, text) => {
                Some(text)
            }
            // An integer of more than 64 bits.
            (0x8a | 0x8b, bytes) if bytes.len() > 8 => Some(bytes),
            _ => None,
        }
    }

    /// Returns a text or bytes; empty for any other value.
    pub(super) fn text(&self, value: PickleValue) -> &'a [u8] {
        self.text_of(value).unwrap_or_default()
    }

    /// Returns an integer; `None` for any other value.
    pub(super) fn integer(&self, value: PickleValue) -> Option<i64> {
        match self.literal(value)? {
            (b'I' | b'L', line) => line_number(line),
            (b'K' | b'M', bytes) => Some(number(bytes)),
            (b'J' | 0x8a | 0x8b, bytes) if bytes.len() <= 8 => {
                let sign = if bytes.last().is_some_and(|last| *last > 127) { -1 } else { 0 };
                Some(append_bytes(sign, bytes))
            }
            _ => None,
        }
    }

    /// Returns the kind of a node; `None` for any other value.
    pub(super) fn kind(&self, value: PickleValue) -> Option<NodeKind> {
        Some(self.nodes.get(value.as_node()?)?.as_header().0)
    }

    /// Returns the values of a node without those that were added later; empty for any other value.
    pub(super) fn items(&self, value: PickleValue) -> &[PickleValue] {
        let Some(at) = value.as_node() else { return &[] };
        &self.nodes[at + 1..][..self.nodes[at].as_header().1]
    }

    /// Returns all values of a node.
    pub(super) fn all_items(&self, value: PickleValue) -> impl Iterator<Item = PickleValue> {
        let first = self.added.partition_point(|(owner, _)| *owner < value);
        let added = self.added[first..].iter().take_while(move |(owner, _)| *owner == value);
        let nodes = once(value).chain(added.map(|(_, node)| *node));
        nodes.flat_map(|node| self.items(node).iter().copied())
    }

    /// Returns the module and the name of a function or class; empty for any other value.
    pub(super) fn function(&self, value: PickleValue) -> (&'a [u8], &'a [u8]) {
        if let Some([b'c' | b'i', lines @ ..]) = value.as_literal().map(|at| &self.bytes[at..]) {
            let (module, rest) = first_line(&lines[..lines.len().min(MAX_TEXT)]);
            return (module, first_line(rest).0);
        }
        match (self.kind(value), self.items(value)) {
            (Some(NodeKind::Global), &[module, name]) => (self.text(module), self.text(name)),
            _ => (&[], &[]),
        }
    }

    /// Returns all storages that are not malformed, even those that no tensor uses.
    pub(super) fn storages(&self) -> impl Iterator<Item = Storage<'a>> {
        let next =
            |at: usize| Some((PickleValue::node(at), at + 1 + self.nodes.get(at)?.as_header().1));
        let nodes = successors(next(0), move |(_, end)| next(*end));
        nodes.filter_map(|(node, _)| Storage::new(self, node))
    }

    /// Interprets an opcode. Returns the value of the pickle at its end.
    fn step(&mut self) -> Result<Option<PickleValue>> {
        self.opcode_at = self.at;
        let opcode = self.take(1)?[0];
        match opcode {
            b'.' => return self.last(1).map(|at| Some(self.stack[at])),
            // The version, and the length of a frame.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'0' => drop(self.stack.pop()),
            b'1' => self.pop_mark().map(|start| self.stack.truncate(start))?,
            b'a' => self.last(1).and_then(|start| self.extend(NodeKind::List, start))?,
            b's' => self.last(2).and_then(|start| self.extend(NodeKind::Dict, start))?,
            b'e' | 0x90 => self.pop_mark().and_then(|start| self.extend(NodeKind::List, start))?,
            b'u' => self.pop_mark().and_then(|start| self.extend(NodeKind::Dict, start))?,
            b'b' => self.last(1).and_then(|start| self.build(start))?,
            b'p' | b'q' | b'r' | 0x94 => {
                let index = self.memo_index(opcode)?;
                let top = *self.stack.last().ok_or_else(|| self.empty_stack())?;
                // Picklers number the entries one by one, and each of them takes at least a byte.
                if index >= self.at {
                    return Err(self.invalid("a memo index is too large"));
                }
                let length = self.memo.len().max(index.saturating_add(1));
                self.charge(length - self.memo.len())?;
                self.memo.resize(length, PickleValue::MARK);
                self.memo[index] = top;
            }
            _ => {
                let value = self.read_value(opcode)?;
                self.stack.push(value);
                if self.stack.len() > MAX_STACK {
                    return Err(self.invalid("the stack is too deep"));
                }
            }
        }
        Ok(None)
    }

    /// Returns the value that an opcode pushes.
    fn read_value(&mut self, opcode: u8) -> Result<PickleValue> {
        match opcode {
            b'(' => Ok(PickleValue::MARK),
            b'2' => self.stack.last().copied().ok_or_else(|| self.empty_stack()),
            b')' => self.add(NodeKind::Tuple, self.stack.len()),
            b']' | 0x8f => self.add(NodeKind::List, self.stack.len()),
            b'}' => self.add(NodeKind::Dict, self.stack.len()),
            b't' => self.pop_mark().and_then(|start| self.add(NodeKind::Tuple, start)),
            b'l' | 0x91 => self.pop_mark().and_then(|start| self.add(NodeKind::List, start)),
            b'd' => self.pop_mark().and_then(|start| self.add(NodeKind::Dict, start)),
            0x85..=0x87 => {
                let start = self.last(usize::from(opcode - 0x84))?;
                self.add(NodeKind::Tuple, start)
            }
            b'Q' => {
                let id = self.last(1).map(|start| self.stack.remove(start))?;
                Ok(self.as_storage(id))
            }
            b'g' | b'h' | b'j' => {
                let index = self.memo_index(opcode)?;
                let value = self.memo.get(index).filter(|value| **value != PickleValue::MARK);
                value.copied().ok_or_else(|| self.invalid("a memo entry is missing"))
            }
            b'c' => self.import_lines(),
            0x93 => {
                let start = self.last(2)?;
                let name = self.add(NodeKind::Global, start)?;
                self.import(name)
            }
            b'R' | 0x81 | 0x92 => {
                let start = self.last(if opcode == 0x92 { 3 } else { 2 })?;
                self.stack.truncate(start + 2);
                self.add(NodeKind::Call, start)
            }
            b'i' => {
                let function = self.import_lines()?;
                let start = self.pop_mark()?;
                self.stack.insert(start, function);
                self.call(start)
            }
            b'o' => self.pop_mark().and_then(|start| self.call(start)),
            0x82..=0x84 => Err(self.invalid("extension codes are not supported")),
            0x97 => Err(self.invalid("external buffers are not supported")),
            _ => self.skip_argument(opcode),
        }
    }

    /// Returns a value without others, whose opcode comes before the current position.
    fn skip_argument(&mut self, opcode: u8) -> Result<PickleValue> {
        let literal = PickleValue::literal(self.opcode_at).ok_or_else(too_large)?;
        match Argument::of(opcode).ok_or_else(|| self.invalid("unknown opcode"))? {
            Argument::Bytes(length) => drop(self.take(length)?),
            Argument::Line => drop(self.line()?),
            Argument::Sized(bytes) => {
                let length = length(number(self.take(bytes)?));
                self.take(length)?;
            }
        }
        let is_known = self.text_of(literal).is_some() || self.integer(literal).is_some();
        Ok(if is_known { literal } else { PickleValue::OTHER })
    }

    /// Takes the module and the name of a function or class.
    fn import_lines(&mut self) -> Result<PickleValue> {
        let literal = PickleValue::literal(self.opcode_at).ok_or_else(too_large)?;
        self.line()?;
        self.line()?;
        self.import(literal)
    }

    /// Records an import.
    fn import(&mut self, function: PickleValue) -> Result<PickleValue> {
        if !self.items(function).iter().all(|part| self.text_of(*part).is_some()) {
            return Err(self.invalid("the name of an import is not a text"));
        }
        let clipped =
            |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(MAX_NAME)]).into_owned();
        let (module, name) = self.function(function);
        self.imports.insert(format!("{}.{}", clipped(module), clipped(name)));
        if self.imports.len() > MAX_IMPORTS {
            return Err(self.invalid("it has too many imports"));
        }
        Ok(function)
    }

    /// Adds the call of a function with the arguments that follow it on the stack.
    fn call(&mut self, start: usize) -> Result<PickleValue> {
        let arguments = self.add(NodeKind::Tuple, self.stack.len().min(start + 1))?;
        self.stack.push(arguments);
        self.add(NodeKind::Call, start)
    }

    /// Returns the storage with a persistent ID. The tuple becomes the storage, because nothing else uses it.
    fn as_storage(&mut self, id: PickleValue) -> PickleValue {
        match id.as_node().map(|at| &mut self.nodes[at]) {
            Some(header) if header.as_header().0 == NodeKind::Tuple => {
                *header = PickleValue::header(NodeKind::Storage, header.as_header().1);
                id
            }
            _ => PickleValue::OTHER,
        }
    }

    /// Adds the state at the top of the stack to the result of a call.
    fn build(&mut self, start: usize) -> Result<()> {
        let owner = start.checked_sub(1).map(|below| self.stack[below]);
        let owner = owner.filter(|owner| self.kind(*owner) == Some(NodeKind::Call));
        if self.stack[start].as_node().is_some()
            && let Some(owner) = owner
        {
            return self.append(owner, start);
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// Adds the values after a collection on the stack to it. The result of a call gets them as another collection.
    fn extend(&mut self, kind: NodeKind, start: usize) -> Result<()> {
        let owner = start.checked_sub(1).map_or(PickleValue::OTHER, |below| self.stack[below]);
        match self.kind(owner) {
            Some(found) if found == kind => self.append(owner, start),
            Some(NodeKind::Call) if start == self.stack.len() => Ok(()),
            Some(NodeKind::Call) => {
                let added = self.add(kind, start)?;
                self.stack.push(added);
                self.append(owner, start)
            }
            _ => Err(self.invalid("elements are added to a value that is not a collection")),
        }
    }

    /// Moves values from the stack to the end of a node.
    fn append(&mut self, owner: PickleValue, start: usize) -> Result<()> {
        if start < self.stack.len() {
            let node = self.add(NodeKind::Tuple, start)?;
            // A list that grows may have room for twice its pairs.
            self.charge(2 * 2)?;
            self.added.push((owner, node));
        }
        Ok(())
    }

    /// Moves the values from a position of the stack on into a new node.
    fn add(&mut self, kind: NodeKind, start: usize) -> Result<PickleValue> {
        let (at, length) = (self.nodes.len(), self.stack.len() - start);
        self.charge(1 + length)?;
        self.nodes.push(PickleValue::header(kind, length));
        self.nodes.extend(self.stack.drain(start..));
        Ok(PickleValue::node(at))
    }

    /// Counts the memory of more values.
    fn charge(&mut self, values: usize) -> Result<()> {
        Ok(spend(&mut self.free_memory, values.saturating_mul(size_of::<PickleValue>()))?)
    }

    /// Returns the position of the last values on the stack.
    fn last(&self, count: usize) -> Result<usize> {
        let start = self.stack.len().checked_sub(count);
        let start = start.filter(|start| !self.stack[*start..].contains(&PickleValue::MARK));
        start.ok_or_else(|| self.empty_stack())
    }

    /// Removes the last mark from the stack, and returns the position of the values after it.
    fn pop_mark(&mut self) -> Result<usize> {
        let mark = self.stack.iter().rposition(|value| *value == PickleValue::MARK);
        let mark = mark.ok_or_else(|| self.invalid("a mark is missing"))?;
        self.stack.remove(mark);
        Ok(mark)
    }

    /// Returns the index of a memo entry: a line, or a number of 1 or 4 bytes, or else the next one.
    fn memo_index(&mut self, opcode: u8) -> Result<usize> {
        let index = match opcode {
            b'q' | b'h' => number(self.take(1)?),
            b'r' | b'j' => number(self.take(4)?),
            0x94 => return Ok(self.memo.len()),
            _ => {
                line_number(self.line()?).ok_or_else(|| self.invalid("a memo index is invalid"))?
            }
        };
        Ok(length(index))
    }

    /// Returns the error for the last opcode.
    pub(super) fn invalid(&self, reason: &str) -> Stop {
        let message = format!("the pickle is malformed at byte {}: {reason}", self.opcode_at);
        HeaderError::new(HeaderErrorKind::Other, message).into()
    }

    fn empty_stack(&self) -> Stop {
        self.invalid("the stack is empty")
    }

    fn missing(&self, end: usize) -> Stop {
        Stop::Missing(self.bytes.len() as u64..end as u64)
    }

    /// Takes the text up to the end of the line.
    fn line(&mut self) -> Result<&'a [u8]> {
        let length = memchr(b'\n', &self.bytes[self.at..]);
        let length = length.ok_or_else(|| self.missing(self.bytes.len() + 1))?;
        let line = self.take(length)?;
        self.at += 1;
        Ok(line)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.saturating_add(length);
        let bytes = self.bytes.get(self.at..end).ok_or_else(|| self.missing(end))?;
        self.at = end;
        Ok(bytes)
    }
}

/// Returns the bytes before and after the first end of a line.
fn first_line(text: &[u8]) -> (&[u8], &[u8]) {
    memchr(b'\n', text).map_or((text, &[]), |end| (&text[..end], &text[end + 1..]))
}

/// Returns a decimal number. Python 2 appends an `L` to long ones.
fn line_number(line: &[u8]) -> Option<i64> {
    std::str::from_utf8(line).ok()?.trim_end_matches('L').parse().ok()
}

/// Returns a little-endian number without a sign.
fn number(bytes: &[u8]) -> i64 {
    append_bytes(0, bytes)
}

/// Appends the bytes of a little-endian number to its sign.
fn append_bytes(sign: i64, bytes: &[u8]) -> i64 {
    bytes.iter().rev().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

/// Returns a number as a length. One that is out of range is longer than any file.
fn length(number: i64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A storage that a pickle refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a [u8],
    /// `None` if the bytes have no type.
    pub(super) element: Option<&'static ElementType>,
    /// The size in bytes; `None` if it overflows.
    pub(super) bytes: Option<u64>,
}

impl<'a> Storage<'a> {
    /// Returns the storage with a persistent ID; `None` if it is malformed.
    pub(super) fn new(pickle: &Pickle<'a>, id: PickleValue) -> Option<Self> {
        // A part of a storage (torch < 0.4) has one more item.
        let (&[_, class, key, _, length] | &[_, class, key, _, length, PickleValue::OTHER]) =
            (pickle.kind(id) == Some(NodeKind::Storage)).then(|| pickle.items(id))?
        else {
            return None;
        };
        let class = pickle.function(class).1.strip_suffix(b"Storage")?;
        let element = ELEMENT_TYPES.iter().find(|(name, ..)| name.as_bytes() == class);
        let element = if class.is_empty() { None } else { element };
        let size = element.map(|(.., size)| *size).or((class == b"Untyped").then_some(1))?;
        let bytes = u64::try_from(pickle.integer(length)?).ok()?.checked_mul(size);
        Some(Self { key: pickle.text(key), element, bytes })
    }
}
