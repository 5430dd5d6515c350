//! URLs without secrets, for messages and logs.

use std::fmt;

use ::url::Url;

/// The maximum length of a displayed path in bytes.
const MAX_PATH: usize = 500;

/// A URL without user, password, query and fragment, safe for messages and logs.
///
/// The query is omitted because it may contain the signature of a signed URL; `…` marks an omitted query. Long paths
/// are truncated.
///
/// ```
/// use hf_meta::SafeUrl;
///
/// let url = url::Url::parse("https://cdn.example.org/x?Signature=s3cr3t").unwrap();
/// assert_eq!(SafeUrl::from(&url).to_string(), "https://cdn.example.org/x…");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SafeUrl(String);

impl From<&Url> for SafeUrl {
    fn from(url: &Url) -> Self {
        let origin = url.origin().ascii_serialization();
        let path = url.path();
        let path = path.get(..MAX_PATH).unwrap_or(path);
        let rest = if url.query().is_some() || path.len() < url.path().len() { "…" } else { "" };
        Self(format!("{origin}{path}{rest}"))
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_long_paths_are_removed() {
        let cases = [
            (
                "https://huggingface.co/gpt2/resolve/main/x",
                "https://huggingface.co/gpt2/resolve/main/x",
            ),
            ("https://user:pass@example.org:8080/x", "https://example.org:8080/x"),
            (
                "https://cdn.example.org/x?Signature=s3cr3t&Expires=1#f",
                "https://cdn.example.org/x…",
            ),
        ];
        for (url, shown) in cases {
            let safe = SafeUrl::from(&Url::parse(url).unwrap());
            assert_eq!(safe.to_string(), shown);
            assert!(!format!("{safe:?}").contains("s3cr3t"));
        }
        let long = Url::parse(&format!("https://example.org/{}", "a".repeat(10_000))).unwrap();
        assert!(SafeUrl::from(&long).to_string().len() < 600);
    }
}
