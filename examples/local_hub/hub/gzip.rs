//! Gzip without compression. A client must distinguish it from plain bytes, and nothing more is tested.

/// The longest block that is stored as it is.
const BLOCK: usize = 0xffff;

/// A gzip file that holds these bytes.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    for block in bytes.chunks(BLOCK) {
        stored(&mut gzip, block, false);
    }
    stored(&mut gzip, &[], true);
    gzip.extend(crc32(bytes).to_le_bytes());
    gzip.extend(&bytes.len().to_le_bytes()[..4]);
    gzip
}

fn stored(gzip: &mut Vec<u8>, block: &[u8], is_last: bool) {
    gzip.push(u8::from(is_last));
    gzip.extend(&block.len().to_le_bytes()[..2]);
    gzip.extend(&(!block.len()).to_le_bytes()[..2]);
    gzip.extend(block);
}

fn crc32(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_crc() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn blocks_are_followed_by_crc_and_size() {
        let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        let ab = [0, 2, 0, 0xfd, 0xff, b'a', b'b', 1, 0, 0, 0xff, 0xff];
        let end = [&crc32(b"ab").to_le_bytes()[..], &[2, 0, 0, 0]].concat();
        assert_eq!(gzip(b"ab"), [&header[..], &ab, &end].concat());
    }
}
