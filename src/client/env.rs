//! The conventions of the Hub's own tools for endpoint, token and cache. The only place in the library
//! that reads the environment, and only when asked to.

use std::env;
use std::path::PathBuf;

use crate::cache::DiskCache;
use crate::client::ClientBuilder;

impl ClientBuilder {
    /// The settings that the environment describes, by the conventions of `huggingface_hub`:
    ///
    /// | variable | sets |
    /// |---|---|
    /// | `HF_ENDPOINT` | the endpoint |
    /// | `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN` | the token |
    /// | `HF_TOKEN_PATH`, else `token` in `HF_HOME`, else in `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache/huggingface` | the file that holds the token |
    /// | `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in the same folders | the cache |
    /// | `HF_HUB_OFFLINE`, else `TRANSFORMERS_OFFLINE` | whether to read from the cache alone |
    /// | `HF_HUB_DISABLE_IMPLICIT_TOKEN` | that none of these tokens is used |
    /// | `https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`, in either case | the proxies, of HTTP |
    pub fn from_env() -> Self {
        let builder = Self::default().proxy_from_env(true);
        let builder = match text("HF_ENDPOINT") {
            Some(endpoint) => builder.endpoint(endpoint),
            None => builder,
        };
        let builder = match cache() {
            Some(folder) => builder.cache(folder),
            None => builder,
        };
        let offline = text("HF_HUB_OFFLINE").or_else(|| text("TRANSFORMERS_OFFLINE"));
        let builder = builder.offline(offline.is_some_and(|value| is_true(&value)));
        match token() {
            Some(token) => builder.token(token),
            None => builder,
        }
    }
}

impl DiskCache {
    /// The cache in the folder that the environment names: `HF_META_CACHE`, else `hf-meta` in
    /// `XDG_CACHE_HOME`, else in `~/.cache`. `None` where `HF_META_CACHE` is `off` or the address of a
    /// cache that is no folder, and where there is not even a home folder.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        if text("HF_META_CACHE").is_some_and(|folder| folder == "off" || folder.contains("://")) {
            return None;
        }
        path("HF_META_CACHE").or_else(|| Some(caches()?.join("hf-meta"))).map(Self::new)
    }
}

/// A variable that is set to more than white space.
fn text(variable: &str) -> Option<String> {
    Some(env::var(variable).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A variable that is set to a path, from the home folder where it starts with `~`.
fn path(variable: &str) -> Option<PathBuf> {
    let text = text(variable)?;
    match text.strip_prefix('~') {
        Some("") => env::home_dir(),
        Some(rest) if rest.starts_with(['/', '\\']) => Some(env::home_dir()?.join(&rest[1..])),
        _ => Some(text.into()),
    }
}

fn token() -> Option<String> {
    if text("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| is_true(&value)) {
        return None;
    }
    text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN")).or_else(token_of_file)
}

/// What `huggingface-cli login` has left.
fn token_of_file() -> Option<String> {
    let path = path("HF_TOKEN_PATH").or_else(|| Some(home()?.join("token")))?;
    let token = std::fs::read_to_string(path).ok()?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

/// Where downloads are kept.
fn cache() -> Option<PathBuf> {
    let folder = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
    folder.or_else(|| Some(home()?.join("hub")))
}

/// The folder of the Hub's tools.
fn home() -> Option<PathBuf> {
    path("HF_HOME").or_else(|| Some(caches()?.join("huggingface")))
}

/// The folder of what can be had again.
fn caches() -> Option<PathBuf> {
    path("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")))
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
}
