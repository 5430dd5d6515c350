//! The order of a hash table, made repeatable.
//!
//! Writers of 2022 and 2023 iterated over a hash table, so the tensors of their files have no order that a reader could
//! rely on. Sorting by a salted hash reproduces this without depending on any library's hasher.

/// FNV-1a of the text, salted, then mixed with the finalizer of `splitmix64` because FNV leaves its high bits, which
/// decide a sort, poorly mixed for short texts.
pub fn hash(text: &str, salt: u64) -> u64 {
    let fnv = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut x = fnv.wrapping_add(salt);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
