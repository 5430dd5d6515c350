//! Hashes of local files.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use hf_meta::ManifestFile;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The number of bytes that are read at once.
const BUFFER: usize = 1 << 20;

/// The way in which a file was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Sha256,
    Git,
    Size,
}

/// Compares the content of a file of the expected size. Returns the hash that was found if it differs.
pub(super) fn check(
    path: &Path,
    expected: &ManifestFile,
    read: impl Fn(u64),
) -> io::Result<(Method, Option<String>)> {
    let (method, hash, found) = match (&expected.sha256, &expected.git_sha1) {
        (Some(hash), _) => (Method::Sha256, hash, hash_file(path, Sha256::new(), read)?),
        (None, Some(hash)) => {
            // Git hashes the content after its type and size.
            let start = format!("blob {}\0", expected.size);
            (Method::Git, hash, hash_file(path, Sha1::new_with_prefix(start), read)?)
        }
        (None, None) => return Ok((Method::Size, None)),
    };
    Ok((method, (!found.eq_ignore_ascii_case(hash)).then_some(found)))
}

fn hash_file(path: &Path, mut hasher: impl Digest, read: impl Fn(u64)) -> io::Result<String> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; BUFFER]);
    loop {
        let length = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..length]);
        read(length as u64);
    }
    let mut text = String::new();
    for byte in hasher.finalize() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by `sha256sum` and `git hash-object`.
    #[test]
    fn hashes_are_those_of_sha256sum_and_git() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "hello\n").unwrap();
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(hash_file(&path, Sha256::new(), |_| {}).unwrap(), sha256);
        let git = hash_file(&path, Sha1::new_with_prefix("blob 6\0"), |_| {}).unwrap();
        assert_eq!(git, "ce013625030ba8dba906f756967f9e9ca394464a");
    }
}
