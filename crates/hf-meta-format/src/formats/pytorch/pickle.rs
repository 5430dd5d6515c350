//! Interprets a pickle without calling anything.

use std::collections::{BTreeSet, HashMap};

use super::values::{ELEMENT_TYPES, Node, NodeKind, PickleValue, Storage};

/// The maximum number of values in the memory of the interpreter. A tensor takes about 70.
const MAX_VALUES: usize = 1 << 20;

/// The maximum depth of the stack. Picklers write collections in batches of 1,000.
const MAX_STACK: usize = 1 << 18;

/// The maximum number of distinct imports.
const MAX_IMPORTS: usize = 1_000;

/// The maximum length of the name of an import in bytes.
const MAX_NAME: usize = 256;

/// The reason why interpretation stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PickleStop {
    /// The bytes end before this offset.
    Missing(usize),
    Invalid(&'static str),
}

type Result<T> = std::result::Result<T, PickleStop>;

const EMPTY_STACK: PickleStop = PickleStop::Invalid("the stack is empty");

/// An interpreter of pickles that follow one another.
#[derive(Debug, Default)]
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte.
    pub(super) at: usize,
    /// The offset of the last opcode.
    pub(super) opcode_at: usize,
    pub(super) imports: BTreeSet<String>,
    stack: Vec<PickleValue>,
    memo: HashMap<i64, PickleValue>,
    nodes: Vec<Node>,
    values: usize,
}

impl<'a> Pickle<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Interprets the next pickle and returns its value.
    pub(super) fn load(&mut self) -> Result<PickleValue> {
        self.stack.clear();
        self.memo.clear();
        loop {
            if let Some(value) = self.step()? {
                return Ok(value);
            }
        }
    }

    /// Returns a text or bytes; empty for any other value.
    pub(super) fn text(&self, value: PickleValue) -> &'a [u8] {
        let PickleValue::Text(start, length) = value else { return &[] };
        &self.bytes[start..start + length as usize]
    }

    pub(super) fn node(&self, value: PickleValue) -> Option<&Node> {
        if let PickleValue::Node(at) = value { self.nodes.get(at) } else { None }
    }

    /// Returns the values in a node; empty for any other value.
    pub(super) fn items(&self, value: PickleValue) -> &[PickleValue] {
        self.node(value).map_or(&[], |node| &node.items)
    }

    /// Returns the module and the name of a function or class; empty for any other value.
    pub(super) fn function(&self, value: PickleValue) -> (&'a [u8], &'a [u8]) {
        match self.node(value) {
            Some(Node { kind: NodeKind::Global, items }) => {
                (self.text(items[0]), self.text(items[1]))
            }
            _ => (&[], &[]),
        }
    }

    /// Returns a storage; `None` if it is malformed.
    pub(super) fn storage(&self, value: PickleValue) -> Option<Storage<'a>> {
        let id = *self.items(value).first()?;
        // A part of a storage (torch < 0.4) has one more item.
        let (&[_, class, key, _, PickleValue::Int(length)]
        | &[_, class, key, _, PickleValue::Int(length), PickleValue::Other]) = self.items(id)
        else {
            return None;
        };
        let class = self.function(class).1.strip_suffix(b"Storage")?;
        let element = ELEMENT_TYPES.iter().find(|(name, ..)| name.as_bytes() == class);
        let element = element.filter(|_| !class.is_empty());
        let size = element.map(|(.., size)| *size).or((class == b"Untyped").then_some(1))?;
        let bytes = u64::try_from(length).ok()?.checked_mul(size);
        Some(Storage { key: self.text(key), element, bytes })
    }

    /// Returns all storages, even those that no tensor uses.
    pub(super) fn storages(&self) -> impl Iterator<Item = Storage<'a>> {
        let nodes = (0..self.nodes.len()).filter(|at| self.nodes[*at].kind == NodeKind::Storage);
        nodes.filter_map(|at| self.storage(PickleValue::Node(at)))
    }

    /// Interprets an opcode. Returns the value of the pickle at its end.
    fn step(&mut self) -> Result<Option<PickleValue>> {
        self.opcode_at = self.at;
        let opcode = self.take(1)?[0];
        match opcode {
            b'.' => return self.pop_last(1).map(|items| Some(items[0])),
            // The version, and the length of a frame.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'0' => drop(self.stack.pop()),
            b'1' => drop(self.pop_items()?),
            b'a' => self.pop_last(1).and_then(|items| self.extend(NodeKind::List, items))?,
            b's' => self.pop_last(2).and_then(|items| self.extend(NodeKind::Dict, items))?,
            b'e' | 0x90 => self.pop_items().and_then(|items| self.extend(NodeKind::List, items))?,
            b'u' => self.pop_items().and_then(|items| self.extend(NodeKind::Dict, items))?,
            b'b' => {
                let state = self.pop_last(1)?;
                if let Some(node) = self.top_node().filter(|node| node.kind == NodeKind::Call) {
                    node.items.extend(state);
                }
            }
            b'p' | b'q' | b'r' | 0x94 => {
                let index = self.memo_index(opcode)?;
                let top = *self.stack.last().ok_or(EMPTY_STACK)?;
                self.memo.insert(index, top);
                self.charge(3)?;
            }
            _ => {
                let value = self.read_value(opcode)?;
                self.stack.push(value);
                if self.stack.len() > MAX_STACK {
                    return Err(PickleStop::Invalid("the stack is too deep"));
                }
            }
        }
        Ok(None)
    }

    /// Returns the value that an opcode pushes.
    fn read_value(&mut self, opcode: u8) -> Result<PickleValue> {
        let invalid = |reason| Err(PickleStop::Invalid(reason));
        match opcode {
            b'(' => Ok(PickleValue::Mark),
            b'2' => self.stack.last().copied().ok_or(EMPTY_STACK),
            b'N' | 0x88 | 0x89 | 0x98 => Ok(PickleValue::Other),
            b'G' => self.take(8).map(|_| PickleValue::Other),
            b'F' | b'P' => self.line().map(|_| PickleValue::Other),
            b'I' | b'L' => Ok(self.line_number()?.map_or(PickleValue::Other, PickleValue::Int)),
            b'K' => self.number(1).map(PickleValue::Int),
            b'M' => self.number(2).map(PickleValue::Int),
            b'J' => self.signed(4),
            0x8a => self.number(1).and_then(|length| self.signed(length)),
            0x8b => self.number(4).and_then(|length| self.signed(length)),
            b'U' | b'C' | 0x8c => self.number(1).and_then(|length| self.sized(length)),
            b'T' | b'X' | b'B' => self.number(4).and_then(|length| self.sized(length)),
            0x8d | 0x8e | 0x96 => self.number(8).and_then(|length| self.sized(length)),
            b'V' => self.line(),
            b'S' => match self.line()? {
                PickleValue::Text(start, length @ 2..) => {
                    Ok(PickleValue::Text(start + 1, length - 2))
                }
                short => Ok(short),
            },
            b')' => self.add(NodeKind::Tuple, Vec::new()),
            b']' | 0x8f => self.add(NodeKind::List, Vec::new()),
            b'}' => self.add(NodeKind::Dict, Vec::new()),
            b't' => self.pop_items().and_then(|items| self.add(NodeKind::Tuple, items)),
            b'l' | 0x91 => self.pop_items().and_then(|items| self.add(NodeKind::List, items)),
            b'd' => self.pop_items().and_then(|items| self.add(NodeKind::Dict, items)),
            0x85..=0x87 => {
                let items = self.pop_last(usize::from(opcode - 0x84))?;
                self.add(NodeKind::Tuple, items)
            }
            b'Q' => self.pop_last(1).and_then(|id| self.add(NodeKind::Storage, id)),
            b'g' | b'h' | b'j' => {
                let index = self.memo_index(opcode)?;
                self.memo.get(&index).copied().map_or(invalid("a memo entry is missing"), Ok)
            }
            b'c' => {
                let name = vec![self.line()?, self.line()?];
                self.import(name)
            }
            0x93 => self.pop_last(2).and_then(|name| self.import(name)),
            b'R' | 0x81 | 0x92 => {
                let mut call = self.pop_last(if opcode == 0x92 { 3 } else { 2 })?;
                call.truncate(2);
                self.add(NodeKind::Call, call)
            }
            b'i' => {
                let name = vec![self.line()?, self.line()?];
                let function = self.import(name)?;
                let arguments = self.pop_items()?;
                let arguments = self.add(NodeKind::Tuple, arguments)?;
                self.add(NodeKind::Call, vec![function, arguments])
            }
            b'o' => {
                let mut call = self.pop_items()?;
                let arguments = call.split_off(call.len().min(1));
                call.push(self.add(NodeKind::Tuple, arguments)?);
                self.add(NodeKind::Call, call)
            }
            0x82..=0x84 => invalid("extension codes are not supported"),
            0x97 => invalid("external buffers are not supported"),
            _ => invalid("unknown opcode"),
        }
    }

    /// Adds the module and the name of a function or class.
    fn import(&mut self, name: Vec<PickleValue>) -> Result<PickleValue> {
        if !name.iter().all(|part| matches!(part, PickleValue::Text(..))) {
            return Err(PickleStop::Invalid("the name of an import is not a text"));
        }
        let clipped = |part: &PickleValue| {
            let text = self.text(*part);
            String::from_utf8_lossy(&text[..text.len().min(MAX_NAME)]).into_owned()
        };
        self.imports.insert(name.iter().map(clipped).collect::<Vec<_>>().join("."));
        if self.imports.len() > MAX_IMPORTS {
            return Err(PickleStop::Invalid("it has too many imports"));
        }
        self.add(NodeKind::Global, name)
    }

    /// Adds elements to the collection at the top of the stack, or to the result of a call.
    fn extend(&mut self, kind: NodeKind, items: Vec<PickleValue>) -> Result<()> {
        self.charge(items.len())?;
        match self.top_node() {
            Some(node) if node.kind == kind => node.items.extend(items),
            Some(node) if node.kind == NodeKind::Call => {
                let added = self.add(kind, items)?;
                self.top_node().into_iter().for_each(|node| node.items.push(added));
            }
            _ => {
                return Err(PickleStop::Invalid(
                    "elements are added to a value that is not a collection",
                ));
            }
        }
        Ok(())
    }

    fn top_node(&mut self) -> Option<&mut Node> {
        if let Some(PickleValue::Node(at)) = self.stack.last() {
            self.nodes.get_mut(*at)
        } else {
            None
        }
    }

    fn add(&mut self, kind: NodeKind, items: Vec<PickleValue>) -> Result<PickleValue> {
        self.charge(items.len() + 4)?;
        self.nodes.push(Node { kind, items });
        Ok(PickleValue::Node(self.nodes.len() - 1))
    }

    /// Counts values that are kept until the end.
    fn charge(&mut self, values: usize) -> Result<()> {
        self.values += values;
        let is_over = self.values > MAX_VALUES;
        if is_over { Err(PickleStop::Invalid("it has too many values")) } else { Ok(()) }
    }

    /// Pops a number of values.
    fn pop_last(&mut self, count: usize) -> Result<Vec<PickleValue>> {
        let start = self.stack.len().checked_sub(count).ok_or(EMPTY_STACK)?;
        let items: Vec<_> = self.stack.drain(start..).collect();
        if items.contains(&PickleValue::Mark) { Err(EMPTY_STACK) } else { Ok(items) }
    }

    /// Pops the values after the last mark, and the mark.
    fn pop_items(&mut self) -> Result<Vec<PickleValue>> {
        let mark = self.stack.iter().rposition(|value| *value == PickleValue::Mark);
        let mark = mark.ok_or(PickleStop::Invalid("a mark is missing"))?;
        Ok(self.stack.drain(mark..).skip(1).collect())
    }

    /// Returns the index of a memo entry: a line, or a number of 1 or 4 bytes, or else the next one.
    fn memo_index(&mut self, opcode: u8) -> Result<i64> {
        match opcode {
            b'q' | b'h' => self.number(1),
            b'r' | b'j' => self.number(4),
            0x94 => Ok(i64::try_from(self.memo.len()).unwrap_or(i64::MAX)),
            _ => self.line_number()?.ok_or(PickleStop::Invalid("a memo index is invalid")),
        }
    }

    /// Takes a line with a decimal number. Python 2 appends an `L` to long ones.
    fn line_number(&mut self) -> Result<Option<i64>> {
        let line = self.line()?;
        let line = std::str::from_utf8(self.text(line));
        Ok(line.ok().and_then(|line| line.trim_end_matches('L').parse().ok()))
    }

    /// Takes the text up to the end of the line.
    fn line(&mut self) -> Result<PickleValue> {
        let length = self.bytes[self.at..].iter().position(|byte| *byte == b'\n');
        let length = length.ok_or(PickleStop::Missing(self.bytes.len() + 1))?;
        let line = self.sized(length.try_into().unwrap_or(i64::MAX))?;
        self.at += 1;
        Ok(line)
    }

    /// Takes a text.
    fn sized(&mut self, length: i64) -> Result<PickleValue> {
        let (start, length) = (self.at, usize::try_from(length).unwrap_or(usize::MAX));
        self.take(length)?;
        Ok(PickleValue::Text(start, u32::try_from(length).unwrap_or_default()))
    }

    /// Takes an integer in two's complement. One of more than 64 bits is kept as a text.
    fn signed(&mut self, length: i64) -> Result<PickleValue> {
        let text = self.sized(length)?;
        let bytes = self.text(text);
        let sign = if bytes.last().is_some_and(|last| *last > 127) { -1 } else { 0 };
        let number = bytes.iter().rev().fold(sign, |number, byte| number << 8 | i64::from(*byte));
        Ok(if bytes.len() > 8 { text } else { PickleValue::Int(number) })
    }

    /// Takes a number without a sign.
    fn number(&mut self, length: usize) -> Result<i64> {
        let bytes = self.take(length)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.saturating_add(length);
        let bytes = self.bytes.get(self.at..end).ok_or(PickleStop::Missing(end))?;
        self.at = end;
        Ok(bytes)
    }
}
