//! The environment variables and folders of `huggingface_hub`, and of this library.

use std::env;
use std::path::PathBuf;

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

/// The token that [`ClientBuilder::from_env`](crate::ClientBuilder::from_env) uses.
#[derive(Hash)]
pub struct EnvironmentToken {
    /// The token itself.
    pub token: String,
    /// The name of its environment variable, or the path of its file.
    pub origin: String,
}

/// Returns the token in the environment.
pub fn environment_token() -> Option<EnvironmentToken> {
    if text("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| is_true(&value)) {
        return None;
    }
    let variable =
        |name: &str| Some(EnvironmentToken { token: text(name)?, origin: name.to_owned() });
    variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")).or_else(saved_token)
}

/// Returns the token that `huggingface-cli login` saved.
fn saved_token() -> Option<EnvironmentToken> {
    let path = path("HF_TOKEN_PATH").or_else(|| Some(hub_home()?.join("token")))?;
    let token = std::fs::read_to_string(&path).ok()?;
    let token = Some(token.trim().to_owned()).filter(|token| !token.is_empty())?;
    Some(EnvironmentToken { token, origin: path.display().to_string() })
}

/// Returns the endpoint of the Hub, if it is set.
pub(crate) fn endpoint() -> Option<String> {
    text("HF_ENDPOINT")
}

/// Returns whether offline mode is set.
pub(crate) fn is_offline() -> bool {
    let offline = text("HF_HUB_OFFLINE").or_else(|| text("TRANSFORMERS_OFFLINE"));
    offline.is_some_and(|value| is_true(&value))
}

/// Returns the folder of the header cache; `None` if it is disabled, a URL, or in no home directory.
pub(crate) fn header_cache() -> Option<PathBuf> {
    if text("HF_META_CACHE").is_some_and(|folder| folder == "off" || folder.contains("://")) {
        return None;
    }
    path("HF_META_CACHE").or_else(|| Some(user_caches()?.join("hf-meta")))
}

/// Returns the download cache of `huggingface_hub`.
pub(crate) fn hub_cache() -> Option<PathBuf> {
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
