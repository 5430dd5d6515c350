//! OpenAPI descriptions of parameters, and of JSON whose types are not defined in the server.

#![expect(dead_code, reason = "the fields describe parameters and JSON; nothing reads them")]

use std::collections::BTreeMap;

use utoipa::{IntoParams, ToSchema};

use crate::badge::{Logo, Metric, Style, Theme};

/// The parameter that names the repository.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct RepoParameter {
    /// The name of a repository, `org/name` or `name`. The slash is not encoded.
    #[param(example = "bigscience/bloom")]
    repo: String,
}

/// The parameters that select weights in the repository.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WeightsParameters {
    /// A branch, tag, ref or commit; by default `main`. A response about a commit of 40 digits never
    /// changes and can be cached forever.
    revision: Option<String>,
    /// A file of weights, an index or a folder in the repository.
    path: Option<String>,
}

/// The parameter of the page that names the repository.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageParameter {
    /// A repository: its name, its URL on the Hub, or `hf://org/name@revision/path`.
    repo: Option<String>,
    /// Names of other repositories to show next to it, separated by spaces.
    compare: Option<String>,
}

/// The parameters of a badge.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BadgeParameters {
    /// The metric that the badge shows.
    #[param(schema_with = Metric::schema)]
    show: Option<Metric>,
    /// The style of the drawing, as on shields.io.
    #[param(schema_with = Style::schema)]
    style: Option<Style>,
    /// The color scheme of the page around the badge.
    #[param(schema_with = Theme::schema)]
    theme: Option<Theme>,
    /// The logo to the left of the label.
    #[param(schema_with = Logo::schema)]
    logo: Option<Logo>,
    /// The text on the left instead of the name of the metric; may be empty.
    label: Option<String>,
    /// The background of the value: a color name of shields.io, or three or six hexadecimal digits.
    color: Option<String>,
}

/// A number for each dtype.
type PerDtype = BTreeMap<String, u64>;

/// The counts of a checkpoint.
#[derive(ToSchema)]
#[schema(as = CountReport, rename_all = "camelCase")]
pub(super) struct CountReportSchema {
    /// The source in the form `hf://org/name@revision/path`.
    source: String,
    /// The commit that was read.
    commit: Option<String>,
    /// The name of the format, such as `safetensors`.
    format: String,
    /// The description of the model in the header of a GGUF file.
    #[schema(value_type = Option<Object>)]
    model: Option<()>,
    /// Set if the weights are in several files.
    sharded: bool,
    /// The number of parameters of each dtype, before quantization.
    parameter_count: PerDtype,
    /// The number of all parameters.
    parameter_total: u64,
    /// `false` if the number of parameters is not certain. `findings` gives the reasons.
    parameter_exact: bool,
    /// The number of stored elements of each dtype.
    element_count: PerDtype,
    /// The number of all stored elements.
    element_total: u64,
    /// The number of scalar tensors of each dtype. They are not counted as elements.
    scalar_count: PerDtype,
    /// The number of parameters in buffers, of each dtype.
    buffer_count: PerDtype,
    /// The size of the tensors of each dtype, in bytes.
    byte_count: PerDtype,
    /// The size of all tensors, in bytes.
    byte_total: u64,
    /// The total that the file declares in its metadata. It is not used for the count.
    declared_total: Option<u64>,
    /// The experts of a mixture of experts, and its active parameters.
    #[schema(value_type = Option<Object>)]
    moe: (),
    /// The reason why the active parameters of a model with routed experts are not known.
    moe_unknown: Option<String>,
    /// The tensors in groups, with the reason why each group counts as it does.
    #[schema(value_type = Object)]
    breakdown: (),
    /// The paths of all files, the index first.
    filepaths: Vec<String>,
    /// Irregularities of the files that do not change the counts.
    #[schema(value_type = Vec<Object>)]
    findings: (),
    /// Other sets of weights in the repository, if they were listed.
    other_sets: Option<Vec<WeightSetSchema>>,
    /// The number of requests, the bytes read and the time of the lookup.
    #[schema(value_type = Object)]
    fetch: (),
    /// The requests by which the headers were read: `exact`, `prefetch` or `hub`.
    plan: String,
    /// `false` if the headers are the Hub's own parse of the files.
    checked_against_bytes: bool,
}

/// A set of weights in a repository.
#[derive(ToSchema)]
#[schema(as = WeightSet)]
pub(in crate::server) struct WeightSetSchema {
    /// The path to select the set by.
    path: String,
    /// The number of files; 0 if it is unknown.
    files: u64,
    /// The size of all files, in bytes.
    bytes: u64,
    /// The name of the format.
    format: String,
    /// The quantization by the name of the file.
    quantization: Option<String>,
    /// The kind of the weights by the name of the file, such as `model` or `adapter`.
    kind: String,
}
