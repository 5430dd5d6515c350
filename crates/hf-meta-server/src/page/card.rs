//! The preview card that other sites show for links to the page (Open Graph).

use maud::{Markup, html};

use super::{PageOutcome, PageUrls, PageView, snippets};
use hf_meta::report::text::{escape, short, short_bytes, thousands};
use hf_meta_badge::MetricValues;

/// Renders the metadata of the card.
pub(super) fn meta(urls: &PageUrls<'_>, view: &PageView<'_>) -> Markup {
    let Some(repo) = view.repo else { return html! {} };
    let (title, description) = match &view.outcome {
        PageOutcome::Counted(summary, ..) => texts(repo, &summary.values),
        PageOutcome::HubReported(values, _) => texts(repo, values),
        PageOutcome::Choice(reason, _) | PageOutcome::Failed(reason) => {
            (repo.to_owned(), escape(reason))
        }
        PageOutcome::Pending => (repo.to_owned(), "Parameter counts".to_owned()),
    };
    html! {
        meta property="og:type" content="website";
        meta property="og:site_name" content="hf-meta";
        meta property="og:title" content=(title);
        meta property="og:description" content=(description);
        meta property="og:url" content={ (urls.base) (snippets::page(view, repo, view.path)) };
        meta name="twitter:card" content="summary";
    }
}

/// Returns the title and description of a model.
fn texts(repo: &str, values: &MetricValues) -> (String, String) {
    let parameters = values.parameters;
    let title = format!("{repo}: {} parameters", short(parameters));
    let dtypes = values.dtypes.iter().take(3).map(|(dtype, _)| escape(dtype.as_str()));
    let mut parts = vec![
        format!("{} parameters", thousands(parameters)),
        dtypes.collect::<Vec<_>>().join(", "),
    ];
    if !values.is_verified {
        parts.push("reported by the Hub, not verified".to_owned());
    }
    parts.extend(values.bytes.map(|bytes| format!("{} of weights", short_bytes(bytes))));
    (title, parts.join(" · "))
}
