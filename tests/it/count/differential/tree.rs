//! Valid headers as trees of JSON text, in which every defect is deliberate.

use std::collections::HashSet;
use std::fmt;

use hf_meta::Dtype;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// JSON that can be invalid: names may repeat, and a token is any text.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Token(String),
    List(Vec<Node>),
    Object(Fields),
}

/// The fields of an object. A name is a token with its quotes.
pub(super) type Fields = Vec<(String, Node)>;

/// A header and the length of its data in bytes.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) fields: Fields,
    pub(super) data_length: usize,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dtype: &'static Dtype,
    shape: Vec<u64>,
    /// The rank of the tensor's data among the tensors.
    rank: u16,
    /// `true` if every character of the name is escaped.
    escaped: bool,
}

impl Node {
    pub(super) fn token(text: impl fmt::Display) -> Self {
        Self::Token(text.to_string())
    }

    pub(super) fn list<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> Self {
        Self::List(values.into_iter().map(Self::token).collect())
    }

    /// The entry of a tensor.
    pub(super) fn entry(dtype: &str, shape: &[u64], begin: u64, end: u64) -> Self {
        Self::Object(vec![
            (quoted("dtype"), Self::token(quoted(dtype))),
            (quoted("shape"), Self::list(shape)),
            (quoted("data_offsets"), Self::list([begin, end])),
        ])
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(text) => f.write_str(text),
            Self::List(nodes) => {
                let nodes: Vec<_> = nodes.iter().map(Self::to_string).collect();
                write!(f, "[{}]", nodes.join(","))
            }
            Self::Object(fields) => {
                let field = |(name, value): &(String, Self)| format!("{name}:{value}");
                let fields: Vec<_> = fields.iter().map(field).collect();
                write!(f, "{{{}}}", fields.join(","))
            }
        }
    }
}

impl Tensor {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bits().unwrap() / 8
    }

    fn field(&self, begin: u64) -> (String, Node) {
        let name = if self.escaped { escaped(&self.name) } else { quoted(&self.name) };
        let entry = Node::entry(self.dtype.as_str(), &self.shape, begin, begin + self.bytes());
        (name, entry)
    }
}

/// Writes a text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Writes a text as a JSON string with every character escaped.
pub(super) fn escaped(text: &str) -> String {
    let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{}\"", units.concat())
}

/// Returns whether the reference implementation knows a dtype of this name.
pub(super) fn reference_knows(dtype: &str) -> bool {
    serde_json::from_str::<safetensors::Dtype>(&quoted(dtype)).is_ok()
}

pub(super) fn header() -> impl Strategy<Value = Header> {
    (vec(tensor(), 0..6), proptest::option::of((metadata(), any::<Index>()))).prop_map(
        |(mut tensors, metadata)| {
            let mut names = HashSet::from(["__metadata__".to_owned()]);
            tensors.retain(|tensor| names.insert(tensor.name.clone()));
            let (mut fields, data_length) = placed(&tensors);
            if let Some((metadata, at)) = metadata {
                fields.insert(at.index(fields.len() + 1), (quoted("__metadata__"), metadata));
            }
            Header { fields, data_length: usize::try_from(data_length).unwrap() }
        },
    )
}

/// Returns every tensor with its offsets, without holes and overlaps, and the length of the data in bytes.
fn placed(tensors: &[Tensor]) -> (Fields, u64) {
    let mut in_data_order: Vec<_> = (0..tensors.len()).collect();
    in_data_order.sort_by_key(|&at| tensors[at].rank);
    let mut begins = vec![0; tensors.len()];
    let mut end = 0;
    for at in in_data_order {
        begins[at] = end;
        end += tensors[at].bytes();
    }
    let fields = tensors.iter().zip(begins).map(|(tensor, begin)| tensor.field(begin)).collect();
    (fields, end)
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let known: Vec<_> =
        Dtype::KNOWN.iter().filter(|dtype| reference_knows(dtype.as_str())).collect();
    let length = prop_oneof![1 => Just(0), 8 => 1_u64..5];
    let parts =
        (text(), select(known), vec(length, 0..=4), any::<u16>(), prop::bool::weighted(0.2));
    parts.prop_map(|(name, dtype, mut shape, rank, escaped)| {
        if dtype.bits().unwrap() % 8 != 0 {
            // Four elements of any width are whole bytes.
            shape.pop();
            shape.push(4);
        }
        Tensor { name, dtype, shape, rank, escaped }
    })
}

fn text() -> impl Strategy<Value = String> {
    const ODD: &[&str] =
        &["", "\0", "\"\\/\u{8}\u{c}\n\r\t", "__metadata__ ", "h.10.ln_1.weight", "\u{feff}"];
    prop_oneof![
        4 => "[a-z.0-9]{1,9}",
        2 => vec(any::<char>(), 0..5).prop_map(String::from_iter),
        1 => select(ODD).prop_map(str::to_owned),
    ]
}

fn metadata() -> impl Strategy<Value = Node> {
    let fields = vec((text(), text()), 0..3).prop_map(|mut pairs| {
        let mut keys = HashSet::new();
        pairs.retain(|(key, _)| keys.insert(key.clone()));
        let field = |(key, value): &(String, String)| (quoted(key), Node::token(quoted(value)));
        Node::Object(pairs.iter().map(field).collect())
    });
    prop_oneof![1 => Just(Node::token("null")), 4 => fields]
}
