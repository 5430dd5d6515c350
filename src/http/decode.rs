//! Bodies of small files, which a server may send compressed: decoded as they come, up to a limit.

use std::io::{self, Write};
use std::mem::take;

use bytes::Bytes;
use flate2::write::GzDecoder;
use reqwest::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};

use super::RangeError;

/// Takes the pieces of a body and gives those of the file.
pub(super) enum Decoder {
    Identity { left: u64 },
    Gzip(Box<GzDecoder<Capped>>),
}

/// Why a body could not be taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The file is longer than the limit.
    OverLimit,
    /// The compressed form is broken or ends early.
    Broken,
}

impl Decoder {
    /// A decoder of what the headers announce, for a file of at most `limit` bytes.
    pub(super) fn new(headers: &HeaderMap, limit: u64) -> Result<Self, RangeError> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None => Ok(Self::Identity { left: limit }),
            Some(encoding) if encoding.eq_ignore_ascii_case(b"identity") => {
                Ok(Self::Identity { left: limit })
            }
            Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => {
                let file = Capped { bytes: Vec::new(), left: limit };
                Ok(Self::Gzip(Box::new(GzDecoder::new(file))))
            }
            Some(_) => Err(RangeError::UnexpectedEncoding),
        }
    }

    /// What the next piece of the body adds to the file.
    pub(super) fn take(&mut self, piece: Bytes) -> Result<Bytes, DecodeError> {
        match self {
            Self::Identity { left } => {
                let rest = left.checked_sub(piece.len() as u64);
                *left = rest.ok_or(DecodeError::OverLimit)?;
                Ok(piece)
            }
            Self::Gzip(decoder) => {
                decoder.write_all(&piece).map_err(|error| DecodeError::of(&error))?;
                Ok(take(&mut decoder.get_mut().bytes).into())
            }
        }
    }

    /// What is left of the file, when all pieces were taken.
    pub(super) fn finish(self) -> Result<Bytes, DecodeError> {
        match self {
            Self::Identity { .. } => Ok(Bytes::new()),
            Self::Gzip(decoder) => match decoder.finish() {
                Ok(file) => Ok(file.bytes.into()),
                Err(error) => Err(DecodeError::of(&error)),
            },
        }
    }
}

impl DecodeError {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => Self::OverLimit,
            _ => Self::Broken,
        }
    }
}

/// A buffer that takes no more than a limit in all, however small the body that it is inflated from.
pub(super) struct Capped {
    bytes: Vec<u8>,
    left: u64,
}

impl Write for Capped {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let rest = self.left.checked_sub(piece.len() as u64);
        self.left = rest.ok_or(io::ErrorKind::FileTooLarge)?;
        self.bytes.write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzip(file: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(file).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(encoding: &'static str, body: &[u8], limit: u64) -> Result<Vec<u8>, DecodeError> {
        let value = HeaderValue::from_static(encoding);
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
        let mut decoder = Decoder::new(&headers, limit).unwrap();
        let mut file = Vec::new();
        for piece in body.chunks(7) {
            file.extend(decoder.take(Bytes::copy_from_slice(piece))?);
        }
        file.extend(decoder.finish()?);
        Ok(file)
    }

    #[test]
    fn files_come_out_as_they_went_in() {
        let file = b"a file of some length, a file of some length".as_slice();
        assert_eq!(decode("identity", file, 100), Ok(file.to_vec()));
        assert_eq!(decode("gzip", &gzip(file), 100), Ok(file.to_vec()));
        assert_eq!(decode("GZIP", &gzip(b""), 0), Ok(Vec::new()));
    }

    #[test]
    fn a_bomb_ends_at_the_limit() {
        let bomb = gzip(&vec![0; 10_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(decode("gzip", &bomb, 1_000_000), Err(DecodeError::OverLimit));
        assert_eq!(decode("identity", &[0; 10], 9), Err(DecodeError::OverLimit));
    }

    #[test]
    fn broken_streams() {
        let body = gzip(b"a file of some length");
        for end in 0..body.len() {
            assert_eq!(decode("gzip", &body[..end], 100), Err(DecodeError::Broken), "{end}");
        }
        assert_eq!(decode("gzip", &[&*body, b"more"].concat(), 100), Err(DecodeError::Broken));
        assert_eq!(decode("gzip", b"not gzip at all", 100), Err(DecodeError::Broken));
    }

    #[test]
    fn other_encodings_are_refused() {
        for encoding in ["br", "zstd", "deflate", "gzip, gzip", ""] {
            let value = HeaderValue::from_str(encoding).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
            assert!(
                matches!(Decoder::new(&headers, 9), Err(RangeError::UnexpectedEncoding)),
                "{encoding}"
            );
        }
    }
}
