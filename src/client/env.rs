//! The environment variables of the Hub's own tools. This is the only part of the library that reads the
//! environment, and only on request.

use std::path::PathBuf;
use std::{env, fmt};

use crate::cache::DiskCache;
use crate::client::ClientBuilder;

impl ClientBuilder {
    /// Returns the settings of the environment, by the conventions of `huggingface_hub`:
    ///
    /// | variable | setting |
    /// |---|---|
    /// | `HF_ENDPOINT` | the endpoint |
    /// | `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN` | the token |
    /// | `HF_TOKEN_PATH`, else `token` in `HF_HOME`, else in `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache/huggingface` | the file that holds the token |
    /// | `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in the same folders | the cache of `huggingface_hub` |
    /// | `HF_HUB_OFFLINE`, else `TRANSFORMERS_OFFLINE` | offline mode |
    /// | `HF_HUB_DISABLE_IMPLICIT_TOKEN` | none of these tokens is used |
    /// | `https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`, in either case | the HTTP proxies |
    /// | `SSL_CERT_FILE`, `SSL_CERT_DIR` | on Linux, the certificates of the [system](Self::system_certificates) |
    pub fn from_env() -> Self {
        let builder = Self::default().proxy_from_env(true).system_certificates(true);
        let builder = match text("HF_ENDPOINT") {
            Some(endpoint) => builder.endpoint(endpoint),
            None => builder,
        };
        let builder = match hub_cache() {
            Some(folder) => builder.hub_cache(folder),
            None => builder,
        };
        let offline = text("HF_HUB_OFFLINE").or_else(|| text("TRANSFORMERS_OFFLINE"));
        let builder = builder.offline(offline.is_some_and(|value| is_true(&value)));
        match token() {
            Some((token, source)) => builder.token(token).token_source(source),
            None => builder,
        }
    }
}

/// The place in the environment that holds a token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSource {
    /// An environment variable.
    Variable(&'static str),
    /// A file.
    File(PathBuf),
}

impl TokenSource {
    /// Returns the place of the token that [`ClientBuilder::from_env`] uses; `None` if there is no token.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        token().map(|(_, source)| source)
    }
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl DiskCache {
    /// Returns the cache in the folder of the environment: `HF_META_CACHE`, else `hf-meta` in
    /// `XDG_CACHE_HOME`, else in `~/.cache`. Returns `None` if `HF_META_CACHE` is `off` or a URL, or if
    /// there is no home folder.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        if text("HF_META_CACHE").is_some_and(|folder| folder == "off" || folder.contains("://")) {
            return None;
        }
        path("HF_META_CACHE").or_else(|| Some(user_caches()?.join("hf-meta"))).map(Self::new)
    }
}

/// Returns the value of a variable, unless it is blank.
fn text(variable: &str) -> Option<String> {
    Some(env::var(variable).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the path in a variable. A leading `~` is the home folder.
fn path(variable: &str) -> Option<PathBuf> {
    let text = text(variable)?;
    match text.strip_prefix('~') {
        Some("") => env::home_dir(),
        Some(rest) if rest.starts_with(['/', '\\']) => Some(env::home_dir()?.join(&rest[1..])),
        _ => Some(text.into()),
    }
}

/// Returns the token of the environment, and its place.
fn token() -> Option<(String, TokenSource)> {
    if text("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| is_true(&value)) {
        return None;
    }
    let variable = |name| Some((text(name)?, TokenSource::Variable(name)));
    variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")).or_else(saved_token)
}

/// Returns the token that `huggingface-cli login` has saved.
fn saved_token() -> Option<(String, TokenSource)> {
    let path = path("HF_TOKEN_PATH").or_else(|| Some(hub_home()?.join("token")))?;
    let token = std::fs::read_to_string(&path).ok()?;
    let token = Some(token.trim().to_owned()).filter(|token| !token.is_empty())?;
    Some((token, TokenSource::File(path)))
}

/// Returns the folder of downloaded files.
fn hub_cache() -> Option<PathBuf> {
    let folder = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
    folder.or_else(|| Some(hub_home()?.join("hub")))
}

/// Returns the folder of the Hub's tools.
fn hub_home() -> Option<PathBuf> {
    path("HF_HOME").or_else(|| Some(user_caches()?.join("huggingface")))
}

/// Returns the cache folder of the user.
fn user_caches() -> Option<PathBuf> {
    path("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")))
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
}
