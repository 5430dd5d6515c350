//! Configuration from the environment variables of the Hub's own tools. Only this part of the library reads the
//! environment, and only on request.

use std::env;
use std::path::PathBuf;

use super::builder::ClientBuilder;
use crate::cache::DiskCache;

impl ClientBuilder {
    /// Returns a builder configured from environment variables, following the conventions of `huggingface_hub`:
    ///
    /// | variable | setting |
    /// |---|---|
    /// | `HF_ENDPOINT` | the endpoint |
    /// | `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN` | the token |
    /// | `HF_TOKEN_PATH`, else `token` in `HF_HOME` | the file that contains the token |
    /// | `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME` | the cache of `huggingface_hub` |
    /// | `HF_HUB_OFFLINE`, else `TRANSFORMERS_OFFLINE` | offline mode |
    /// | `HF_HUB_DISABLE_IMPLICIT_TOKEN` | disables all of the above token sources |
    /// | `https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`, in lower or upper case | the proxies |
    /// | `SSL_CERT_FILE`, `SSL_CERT_DIR` | on Linux, the [system certificates](Self::system_certificates) |
    ///
    /// `HF_HOME` defaults to `huggingface` in `XDG_CACHE_HOME`, or else in `~/.cache`. No
    /// [`header_cache`](Self::header_cache) is set; see [`DiskCache::from_env`].
    pub fn from_env() -> Self {
        let offline = text("HF_HUB_OFFLINE").or_else(|| text("TRANSFORMERS_OFFLINE"));
        let mut builder = Self::default()
            .proxy_from_env(true)
            .system_certificates(true)
            .offline(offline.is_some_and(|value| is_true(&value)));
        if let Some(endpoint) = text("HF_ENDPOINT") {
            builder = builder.endpoint(endpoint);
        }
        if let Some(folder) = hub_cache() {
            builder = builder.hub_cache(folder);
        }
        if let Some((token, _)) = environment_token() {
            builder = builder.token(token);
        }
        builder
    }
}

impl DiskCache {
    /// Returns the cache in the folder named by `HF_META_CACHE`, or else in `hf-meta` in `XDG_CACHE_HOME` or
    /// `~/.cache`. Returns `None` if `HF_META_CACHE` is `off` or a URL, or if there is no home directory.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        if text("HF_META_CACHE").is_some_and(|folder| folder == "off" || folder.contains("://")) {
            return None;
        }
        path("HF_META_CACHE").or_else(|| Some(user_caches()?.join("hf-meta"))).map(Self::new)
    }
}

/// Returns the value of a variable, or `None` if it is blank.
fn text(variable: &str) -> Option<String> {
    Some(env::var(variable).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the path in a variable. Expands a leading `~` to the home folder.
fn path(variable: &str) -> Option<PathBuf> {
    let text = text(variable)?;
    match text.strip_prefix('~') {
        Some("") => env::home_dir(),
        Some(rest) if rest.starts_with(['/', '\\']) => Some(env::home_dir()?.join(&rest[1..])),
        _ => Some(text.into()),
    }
}

/// Returns the token that [`ClientBuilder::from_env`] uses, and its origin: the name of an environment variable, or the
/// path of a file.
#[must_use]
pub fn environment_token() -> Option<(String, String)> {
    if text("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| is_true(&value)) {
        return None;
    }
    let variable = |name: &str| Some((text(name)?, name.to_owned()));
    variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")).or_else(saved_token)
}

/// Returns the token that `huggingface-cli login` saved.
fn saved_token() -> Option<(String, String)> {
    let path = path("HF_TOKEN_PATH").or_else(|| Some(hub_home()?.join("token")))?;
    let token = std::fs::read_to_string(&path).ok()?;
    let token = Some(token.trim().to_owned()).filter(|token| !token.is_empty())?;
    Some((token, path.display().to_string()))
}

/// Returns the download cache of `huggingface_hub`.
fn hub_cache() -> Option<PathBuf> {
    let folder = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
    folder.or_else(|| Some(hub_home()?.join("hub")))
}

/// Returns `HF_HOME`, the folder of the Hub's tools.
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
