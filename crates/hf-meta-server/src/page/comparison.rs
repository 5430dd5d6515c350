//! Compares several models side by side.

use maud::{Markup, html};

use super::{PageView, snippets};
use hf_meta::RepoId;
use hf_meta_badge::Metric;

/// The maximum number of other models.
const MAX_OTHERS: usize = 5;

/// The metrics of the comparison.
const METRICS: [(Metric, &str); 4] = [
    (Metric::Params, "Parameters"),
    (Metric::Bytes, "Size"),
    (Metric::Dtype, "Dtype"),
    (Metric::Tensors, "Tensors"),
];

/// Parses repository names separated by whitespace or commas. Other text is ignored.
pub(crate) fn repos(text: &str) -> Vec<RepoId> {
    let names = text.split([' ', ',', '\n', '\t']).filter(|name| !name.is_empty());
    names.filter_map(|name| name.parse().ok()).take(MAX_OTHERS).collect()
}

/// Returns the repositories as text for the form.
pub(super) fn names(repos: &[RepoId]) -> String {
    repos.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Renders the badges of this model and the others, or nothing without others. The browser requests each badge, so a
/// slow model does not delay the others.
pub(super) fn table(view: &PageView<'_>, repo: &str) -> Markup {
    let others = view.others.iter().map(ToString::to_string);
    let models: Vec<_> = [repo.to_owned()].into_iter().chain(others).collect();
    html! {
        @if !view.others.is_empty() {
            section aria-labelledby="comparison" {
                h2 #comparison { "Comparison" }
                div .comparison {
                    @for model in &models {
                        div {
                            h3 { a href=(snippets::other_page(view, model)) { (model) } }
                            @for (metric, name) in METRICS {
                                @let alt = format!("{name} of {model}");
                                img src=(snippets::other_badge(view, model, metric)) alt=(alt);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_repositories_are_found_and_other_text_is_ignored() {
        assert_eq!(names(&repos("gpt2, org/name  ../etc <script>\torg/b")), "gpt2 org/name org/b");
        assert_eq!(repos(&"gpt2 ".repeat(100)).len(), MAX_OTHERS);
    }
}
