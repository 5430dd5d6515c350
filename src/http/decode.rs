//! Decodes the bodies of small files as they arrive, up to a size limit. Servers may compress them with gzip.

use std::io::{self, Write};
use std::mem::take;

use bytes::Bytes;
use flate2::write::GzDecoder;
use reqwest::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};

use super::RangeError;

/// A streaming decoder of one response body.
pub(super) enum BodyDecoder {
    /// `remaining` counts the bytes left until the limit.
    Identity {
        remaining: u64,
    },
    Gzip(Box<GzDecoder<LimitedBuffer>>),
}

/// The reason a body cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The decoded file is larger than the limit.
    TooLarge,
    /// The gzip stream is corrupt or ends early.
    CorruptGzip,
}

impl BodyDecoder {
    /// Creates the decoder for a response's `Content-Encoding`. It decodes at most `limit` bytes.
    pub(super) fn new(headers: &HeaderMap, limit: u64) -> Result<Self, RangeError> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None => Ok(Self::Identity { remaining: limit }),
            Some(encoding) if encoding.eq_ignore_ascii_case(b"identity") => {
                Ok(Self::Identity { remaining: limit })
            }
            Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => {
                let file = LimitedBuffer { bytes: Vec::new(), remaining: limit };
                Ok(Self::Gzip(Box::new(GzDecoder::new(file))))
            }
            Some(_) => Err(RangeError::UnexpectedEncoding),
        }
    }

    /// Decodes the next bytes of the body.
    pub(super) fn decode(&mut self, body: Bytes) -> Result<Bytes, DecodeError> {
        match self {
            Self::Identity { remaining } => {
                let rest = remaining.checked_sub(body.len() as u64);
                *remaining = rest.ok_or(DecodeError::TooLarge)?;
                Ok(body)
            }
            Self::Gzip(decoder) => {
                decoder.write_all(&body).map_err(|error| DecodeError::from_io(&error))?;
                Ok(take(&mut decoder.get_mut().bytes).into())
            }
        }
    }

    /// Returns the remaining decoded bytes at the end of the body, and checks the gzip trailer.
    pub(super) fn finish(self) -> Result<Bytes, DecodeError> {
        match self {
            Self::Identity { .. } => Ok(Bytes::new()),
            Self::Gzip(decoder) => match decoder.finish() {
                Ok(file) => Ok(file.bytes.into()),
                Err(error) => Err(DecodeError::from_io(&error)),
            },
        }
    }
}

impl DecodeError {
    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => Self::TooLarge,
            _ => Self::CorruptGzip,
        }
    }
}

/// A buffer that accepts a limited number of bytes over its lifetime. Protects against decompression bombs.
pub(super) struct LimitedBuffer {
    bytes: Vec<u8>,
    remaining: u64,
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = self.remaining.checked_sub(bytes.len() as u64);
        self.remaining = rest.ok_or(io::ErrorKind::FileTooLarge)?;
        self.bytes.write(bytes)
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
        let mut decoder = BodyDecoder::new(&headers, limit).unwrap();
        let mut file = Vec::new();
        for bytes in body.chunks(7) {
            file.extend(decoder.decode(Bytes::copy_from_slice(bytes))?);
        }
        file.extend(decoder.finish()?);
        Ok(file)
    }

    #[test]
    fn plain_and_gzip_bodies_decode_to_the_file() {
        let file = b"a file of some length, a file of some length".as_slice();
        assert_eq!(decode("identity", file, 100), Ok(file.to_vec()));
        assert_eq!(decode("gzip", &gzip(file), 100), Ok(file.to_vec()));
        assert_eq!(decode("GZIP", &gzip(b""), 0), Ok(Vec::new()));
    }

    #[test]
    fn a_decompression_bomb_is_an_error_at_the_limit() {
        let bomb = gzip(&vec![0; 10_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(decode("gzip", &bomb, 1_000_000), Err(DecodeError::TooLarge));
        assert_eq!(decode("identity", &[0; 10], 9), Err(DecodeError::TooLarge));
    }

    #[test]
    fn a_corrupt_gzip_body_is_an_error() {
        let body = gzip(b"a file of some length");
        for end in 0..body.len() {
            assert_eq!(decode("gzip", &body[..end], 100), Err(DecodeError::CorruptGzip), "{end}");
        }
        assert_eq!(decode("gzip", &[&*body, b"more"].concat(), 100), Err(DecodeError::CorruptGzip));
        assert_eq!(decode("gzip", b"not gzip at all", 100), Err(DecodeError::CorruptGzip));
    }

    #[test]
    fn other_encodings_are_rejected() {
        for encoding in ["br", "zstd", "deflate", "gzip, gzip", ""] {
            let value = HeaderValue::from_str(encoding).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
            assert!(
                matches!(BodyDecoder::new(&headers, 9), Err(RangeError::UnexpectedEncoding)),
                "{encoding}"
            );
        }
    }
}
