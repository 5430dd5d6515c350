//! OpenAPI descriptions of parameters, and of JSON types that are defined outside the server.

#![expect(dead_code, reason = "the fields describe parameters and JSON; nothing reads them")]

use std::collections::BTreeMap;

use utoipa::{IntoParams, ToSchema};

use hf_meta_badge::{Logo, Metric, Style, Theme};

/// The parameter that selects the repository.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct RepoParameter {
    /// The name of the repository: `org/name` or `name`. The slash is not percent-encoded.
    #[param(example = "bigscience/bloom")]
    repo: String,
}

/// The parameters that select weights in the repository.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WeightsParameters {
    /// A branch, tag, ref or commit; `main` by default. If it is a full commit hash, the response never changes and
    /// can be cached forever.
    revision: Option<String>,
    /// A weight file, an index or a folder in the repository.
    path: Option<String>,
}

/// The parameters of the page that select repositories.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageParameter {
    /// A repository: its name, its URL on the Hub, or `hf://org/name@revision/path`.
    repo: Option<String>,
    /// Names of other repositories to compare it with, separated by spaces.
    compare: Option<String>,
}

/// The parameters of a badge.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BadgeParameters {
    /// The metric to show.
    #[param(schema_with = Metric::schema)]
    show: Option<Metric>,
    /// The badge style, as on shields.io.
    #[param(schema_with = Style::schema)]
    style: Option<Style>,
    /// The theme of the page that shows the badge.
    #[param(schema_with = Theme::schema)]
    theme: Option<Theme>,
    /// The logo to the left of the label.
    #[param(schema_with = Logo::schema)]
    logo: Option<Logo>,
    /// The text on the left, instead of the metric name; may be empty.
    label: Option<String>,
    /// The background color of the value: a shields.io color name, or three or six hexadecimal digits.
    color: Option<String>,
}

/// A number for each dtype.
type PerDtype = BTreeMap<String, u64>;

/// The parameter counts of a checkpoint.
#[derive(ToSchema)]
#[schema(as = CountReport, rename_all = "camelCase")]
pub(super) struct CountReportSchema {
    /// The source in the form `hf://org/name@revision/path`.
    source: String,
    /// The commit that was read.
    commit: Option<String>,
    /// The name of the format, such as `safetensors`.
    format: String,
    /// The model description in the header of a GGUF file.
    #[schema(value_type = Option<Object>)]
    model: Option<()>,
    /// `true` if the weights are split across several files.
    sharded: bool,
    /// The number of parameters per dtype, before quantization.
    parameter_count: PerDtype,
    /// The total number of parameters.
    parameter_total: u64,
    /// `false` if the number of parameters is uncertain; `findings` states the reasons.
    parameter_exact: bool,
    /// The number of stored elements per dtype.
    element_count: PerDtype,
    /// The total number of stored elements.
    element_total: u64,
    /// The number of scalar tensors per dtype. They are not included in the elements.
    scalar_count: PerDtype,
    /// The number of parameters in buffers, per dtype.
    buffer_count: PerDtype,
    /// The size of the tensors per dtype, in bytes.
    byte_count: PerDtype,
    /// The total size of the tensors, in bytes.
    byte_total: u64,
    /// The total declared by the file or the index. It is not used for the count.
    declared_total: Option<u64>,
    /// The experts and the active parameters of a mixture of experts.
    #[schema(value_type = Option<Object>)]
    moe: (),
    /// The reason why the active parameters of a model with routed experts could not be determined.
    moe_unknown: Option<String>,
    /// The tensors, grouped by how they were counted.
    #[schema(value_type = Object)]
    breakdown: (),
    /// The paths of all files that were read, starting with the index if there is one.
    filepaths: Vec<String>,
    /// Findings about the files that did not cause the lookup to fail.
    #[schema(value_type = Vec<Object>)]
    findings: (),
    /// The other weight sets in the repository, if they were listed.
    other_sets: Option<Vec<WeightSetSchema>>,
    /// The requests, bytes and time that the lookup took.
    #[schema(value_type = Object)]
    fetch: (),
    /// The plan by which the headers were read: `exact`, `prefetch` or `hub`.
    plan: String,
    /// `false` if the headers come from the Hub's own parse rather than from the files.
    checked_against_bytes: bool,
}

/// A weight set in a repository.
#[derive(ToSchema)]
#[schema(as = WeightSet)]
pub(crate) struct WeightSetSchema {
    /// The path that selects this weight set.
    path: String,
    /// The number of files, or 0 if unknown.
    files: u64,
    /// The total size of the files, in bytes.
    bytes: u64,
    /// The name of the format.
    format: String,
    /// The quantization according to the file name.
    quantization: Option<String>,
    /// The kind of weights according to the file name, such as `model` or `adapter`.
    kind: String,
}
