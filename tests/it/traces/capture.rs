//! A subscriber that keeps what is told of a future.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span or an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The name of a span, the message of an event.
    pub(crate) what: String,
    pub(crate) level: String,
    pub(crate) is_span: bool,
    /// Its own fields, and those of the spans that it is in.
    fields: BTreeMap<&'static str, String>,
    parent: Option<usize>,
}

impl Told {
    /// The text of a field; empty where it has none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.fields.values().map(String::as_str).chain([&*self.what])
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.what = format!("{value:?}");
        } else {
            self.fields.insert(field.name(), format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// What was told so far, in the order in which it began.
#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<Told>>>);

/// The place of a span among what was told.
struct Place(usize);

impl Capture {
    /// The same future, listened to. Only to our own words, as in the command.
    pub(crate) fn of<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let ours = Targets::new().with_target("hf_meta", LevelFilter::TRACE);
        future.with_subscriber(Registry::default().with(ours).with(self.clone()))
    }

    /// All of it, each with the fields of the spans that it is in.
    pub(crate) fn told(&self) -> Vec<Told> {
        let mut told = self.0.lock().unwrap().clone();
        for at in 0..told.len() {
            if let Some(parent) = told[at].parent {
                let mut fields = told[parent].fields.clone();
                fields.append(&mut told[at].fields);
                told[at].fields = fields;
            }
        }
        told
    }

    /// The spans of a name, or the events of a message.
    pub(crate) fn all(&self, what: &str) -> Vec<Told> {
        self.told().into_iter().filter(|told| told.what == what).collect()
    }

    fn push(&self, told: Told) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(told);
        all.len() - 1
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().map(|parent| parent.extensions().get::<Place>().unwrap().0);
        let (level, what) = (attributes.metadata().level().to_string(), span.name().to_owned());
        let mut told = Told { what, level, is_span: true, parent, ..Told::default() };
        attributes.record(&mut told);
        span.extensions_mut().insert(Place(self.push(told)));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let place = context.span(id).unwrap().extensions().get::<Place>().unwrap().0;
        values.record(&mut self.0.lock().unwrap()[place]);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let span = context.event_span(event);
        let parent = span.map(|span| span.extensions().get::<Place>().unwrap().0);
        let level = event.metadata().level().to_string();
        let mut told = Told { level, parent, ..Told::default() };
        event.record(&mut told);
        self.push(told);
    }
}
