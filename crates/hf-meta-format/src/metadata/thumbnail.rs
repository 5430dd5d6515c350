//! Thumbnails: small images in data URLs.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use thiserror::Error;

/// The maximum length of a data URL in bytes. The SAI Model Spec recommends a very small icon of 256 × 256 pixels.
pub const MAX_THUMBNAIL: usize = 1_000_000;

/// Base64 with optional padding: the specification does not require it, and browsers do not, either.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The types of images that browsers show and that cannot contain a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageType {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP.
    Webp,
    /// GIF.
    Gif,
}

impl ImageType {
    /// Returns the media type, such as `image/png`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
        }
    }

    /// Returns the name, such as `PNG`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Webp => "WebP",
            Self::Gif => "GIF",
        }
    }
}

/// The type and the size of an image, according to its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image {
    /// The type.
    pub image_type: ImageType,
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
}

impl Image {
    /// Parses the header of an image. Returns `None` for other types and for images without pixels.
    ///
    /// ```
    /// use hf_meta_format::metadata::{Image, ImageType};
    ///
    /// let image = Image::parse(b"GIF89a\x10\0\x20\0\0\0\0").unwrap();
    /// assert_eq!((image.image_type, image.width, image.height), (ImageType::Gif, 16, 32));
    /// assert_eq!(Image::parse(b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>"), None);
    /// ```
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (image_type, [width, height]) = png(bytes)
            .map(|size| (ImageType::Png, size))
            .or_else(|| jpeg(bytes).map(|size| (ImageType::Jpeg, size)))
            .or_else(|| webp(bytes).map(|size| (ImageType::Webp, size)))
            .or_else(|| gif(bytes).map(|size| (ImageType::Gif, size)))?;
        (width > 0 && height > 0).then_some(Self { image_type, width, height })
    }
}

/// Returns `N` bytes at an offset.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Reads the size in a PNG file, which is in its first chunk (section 11.2.2 of the specification).
fn png(bytes: &[u8]) -> Option<[u32; 2]> {
    let rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    (at(rest, 4)? == *b"IHDR").then_some(())?;
    Some([u32::from_be_bytes(at(rest, 8)?), u32::from_be_bytes(at(rest, 12)?)])
}

/// Reads the size in a GIF file, which follows the version.
fn gif(bytes: &[u8]) -> Option<[u32; 2]> {
    let rest = bytes.strip_prefix(b"GIF87a").or_else(|| bytes.strip_prefix(b"GIF89a"))?;
    Some([0, 2].map(|offset| at(rest, offset).map(u16::from_le_bytes)))
        .and_then(|[width, height]| Some([width?.into(), height?.into()]))
}

/// Reads the size in a JPEG file: in the first frame header, which follows any number of other segments (ITU-T T.81,
/// appendix B).
fn jpeg(bytes: &[u8]) -> Option<[u32; 2]> {
    let mut rest = bytes.strip_prefix(b"\xff\xd8")?;
    loop {
        rest = rest.strip_prefix(b"\xff")?;
        match *rest.first()? {
            // A fill byte.
            0xff => {}
            // The frame headers; the others are tables with numbers between them.
            marker @ 0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let [height, width] = [4, 6].map(|offset| at(rest, offset).map(u16::from_be_bytes));
                return Some([width?.into(), height?.into()]);
            }
            // Markers without a length, and the start of the pixels.
            0x00..=0x01 | 0xd0..=0xda => return None,
            _ => {
                let length = usize::from(u16::from_be_bytes(at(rest, 1)?));
                // The length contains itself.
                rest = rest.get(1 + length.max(2)..)?;
            }
        }
    }
}

/// Reads the size in a WebP file: in its first chunk, whose layout depends on the compression (RFC 9649).
fn webp(bytes: &[u8]) -> Option<[u32; 2]> {
    let rest = bytes.strip_prefix(b"RIFF")?.get(4..)?.strip_prefix(b"WEBP")?;
    let (kind, chunk) = (at::<4>(rest, 0)?, rest.get(8..)?);
    match &kind {
        b"VP8 " => {
            (at(chunk, 3)? == *b"\x9d\x01\x2a").then_some(())?;
            let [width, height] = [6, 8].map(|offset| at(chunk, offset).map(u16::from_le_bytes));
            Some([width? & 0x3fff, height? & 0x3fff].map(u32::from))
        }
        b"VP8L" => {
            let bits = u32::from_le_bytes(at(chunk.strip_prefix(b"\x2f")?, 0)?);
            Some([(bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1])
        }
        b"VP8X" => {
            let [width, height] = [4, 7].map(|offset| at::<3>(chunk, offset));
            let size =
                |[low, middle, high]: [u8; 3]| u32::from_le_bytes([low, middle, high, 0]) + 1;
            Some([size(width?), size(height?)])
        }
        _ => None,
    }
}

/// A decoded thumbnail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thumbnail {
    /// The type and the size, according to the bytes. The media type that the URL states is ignored.
    pub image: Image,
    /// The image file.
    pub bytes: Vec<u8>,
}

/// The reason why a text is not a thumbnail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ThumbnailError {
    /// The text is not a data URL in base64.
    #[error("is not a data URL in base64")]
    NotADataUrl,
    /// The text exceeds [`MAX_THUMBNAIL`].
    #[error("has {0} bytes, more than {MAX_THUMBNAIL}")]
    TooLong(usize),
    /// The data are not base64.
    #[error("is not valid base64")]
    InvalidBase64,
    /// The bytes are not an image of a type in [`ImageType`].
    #[error("is not a PNG, JPEG, WebP or GIF image")]
    NotAnImage,
}

impl Thumbnail {
    /// Parses a data URL, such as `data:image/jpeg;base64,…`.
    ///
    /// ```
    /// use hf_meta_format::metadata::{Thumbnail, ThumbnailError};
    ///
    /// let url = Thumbnail::data_url(b"GIF89a\x01\0\x01\0\0\0\0").unwrap();
    /// assert_eq!(url, "data:image/gif;base64,R0lGODlhAQABAAAAAA==");
    /// assert_eq!(Thumbnail::parse(&url).unwrap().image.width, 1);
    /// let html = Thumbnail::parse("data:text/html;base64,PGh0bWw+");
    /// assert_eq!(html, Err(ThumbnailError::NotAnImage));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the text is too long, not a data URL in base64, or not an image.
    pub fn parse(url: &str) -> Result<Self, ThumbnailError> {
        if url.len() > MAX_THUMBNAIL {
            return Err(ThumbnailError::TooLong(url.len()));
        }
        let (header, data) = url.split_once(',').ok_or(ThumbnailError::NotADataUrl)?;
        // The scheme and the extension are not case-sensitive (RFC 2397, RFC 3986).
        let header = header.to_ascii_lowercase();
        if !(header.starts_with("data:") && header.trim_end().ends_with(";base64")) {
            return Err(ThumbnailError::NotADataUrl);
        }
        let bytes = LENIENT.decode(data.trim()).map_err(|_| ThumbnailError::InvalidBase64)?;
        let image = Image::parse(&bytes).ok_or(ThumbnailError::NotAnImage)?;
        Ok(Self { image, bytes })
    }

    /// Returns the data URL of an image file; `None` if the bytes are not an image.
    pub fn data_url(bytes: &[u8]) -> Option<String> {
        let media_type = Image::parse(bytes)?.image_type.media_type();
        Some(format!("data:{media_type};base64,{}", STANDARD.encode(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The starts of image files of 640 × 400 pixels. All were compared with the size that Pillow reads.
    const IMAGES: [(ImageType, &[u8]); 7] = [
        (ImageType::Png, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\x90"),
        (ImageType::Gif, b"GIF87a\x80\x02\x90\x01"),
        (
            ImageType::Jpeg,
            b"\xff\xd8\xff\xe0\0\x04AB\xff\xff\xdb\0\x03x\xff\xc0\0\x0b\x08\x01\x90\x02\x80\x01",
        ),
        (ImageType::Jpeg, b"\xff\xd8\xff\xc4\0\x02\xff\xc2\0\x0b\x08\x01\x90\x02\x80\x01"),
        (ImageType::Webp, b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x80\x42\x90\x81"),
        (ImageType::Webp, b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x7f\xc2\x63\x10"),
        (ImageType::Webp, b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x7f\x02\0\x8f\x01\0"),
    ];

    #[test]
    fn sizes_of_images_are_read() {
        for (image_type, bytes) in IMAGES {
            let expected = Some(Image { image_type, width: 640, height: 400 });
            assert_eq!(Image::parse(bytes), expected, "{bytes:?}");
            assert_eq!(Image::parse(&[bytes, b"more"].concat()), expected);
            for length in 0..bytes.len() - 1 {
                assert_eq!(Image::parse(&bytes[..length]), None, "{length} of {bytes:?}");
            }
        }
        assert_eq!(Image::parse(b"GIF89a\0\0\x01\0"), None, "no pixels");
        assert_eq!(Image::parse(b"\xff\xd8\xff\xda\0\x04AB\xff\xc0"), None, "no frame header");
    }

    #[test]
    fn other_texts_are_not_thumbnails() {
        use ThumbnailError::{InvalidBase64, NotADataUrl, NotAnImage, TooLong};

        let long = format!("data:image/png;base64,{}", "A".repeat(MAX_THUMBNAIL));
        let cases = [
            ("", NotADataUrl),
            ("cover.png", NotADataUrl),
            ("https://example.org/x,y", NotADataUrl),
            ("data:image/svg+xml,<svg onload=alert(1)>", NotADataUrl),
            ("data:image/png;base64,***", InvalidBase64),
            ("data:image/png;base64,é", InvalidBase64),
            ("data:image/png;base64,", NotAnImage),
            ("data:image/png;base64,PHN2Zy8+", NotAnImage),
            (&long, TooLong(MAX_THUMBNAIL + 22)),
        ];
        for (url, error) in cases {
            assert_eq!(Thumbnail::parse(url), Err(error), "{url:.40}");
        }
    }

    #[test]
    fn the_stated_media_type_is_ignored() {
        let thumbnail = Thumbnail::parse("DATA:text/html;BASE64, R0lGODlhAQABAAAAAA ").unwrap();
        assert_eq!(thumbnail.image.image_type, ImageType::Gif);
        assert_eq!(thumbnail.bytes.len(), 13);
        assert_eq!(Thumbnail::data_url(b"<svg/>"), None);
    }
}
