//! URLs that may be shown.

use std::fmt;

use ::url::Url;

/// The longest URL that is shown in full, in bytes of its path.
const LONGEST_PATH: usize = 500;

/// A URL without what must not be shown: user, password, query and fragment. The query of a signed
/// URL is its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeUrl(String);

impl From<&Url> for SafeUrl {
    fn from(url: &Url) -> Self {
        let origin = url.origin().ascii_serialization();
        let path = url.path();
        let path = path.get(..LONGEST_PATH).unwrap_or(path);
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
    fn secrets_are_left_out() {
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
