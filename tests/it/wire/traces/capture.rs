//! A subscriber that records the spans and events of a future.

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

/// A recorded span or event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// The name of a span, or the message of an event.
    pub(crate) name: String,
    pub(crate) level: String,
    /// The fields, including the fields of the enclosing spans.
    fields: BTreeMap<&'static str, String>,
    parent: Option<usize>,
}

impl Recorded {
    /// Returns the text of a field; empty if it has none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.fields.values().map(String::as_str).chain([&*self.name])
    }
}

impl Visit for Recorded {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.name = format!("{value:?}");
        } else {
            self.fields.insert(field.name(), format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// The recorded spans and events, in the order of their start.
#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<Recorded>>>);

/// The index of a span in the recording.
struct SpanIndex(usize);

impl Capture {
    /// Records the spans and events of this crate while a future runs.
    pub(crate) fn record<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let ours = Targets::new().with_target("hf_meta", LevelFilter::TRACE);
        future.with_subscriber(Registry::default().with(ours).with(self.clone()))
    }

    /// Returns all spans and events, with the fields of their enclosing spans.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        let mut recorded = self.0.lock().unwrap().clone();
        for at in 0..recorded.len() {
            if let Some(parent) = recorded[at].parent {
                let mut fields = recorded[parent].fields.clone();
                fields.append(&mut recorded[at].fields);
                recorded[at].fields = fields;
            }
        }
        recorded
    }

    /// Returns the spans with a name, or the events with a message.
    pub(crate) fn all(&self, name: &str) -> Vec<Recorded> {
        self.recorded().into_iter().filter(|recorded| recorded.name == name).collect()
    }

    fn push(&self, recorded: Recorded) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(recorded);
        all.len() - 1
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().map(|parent| parent.extensions().get::<SpanIndex>().unwrap().0);
        let (level, name) = (attributes.metadata().level().to_string(), span.name().to_owned());
        let mut recorded = Recorded { name, level, parent, ..Recorded::default() };
        attributes.record(&mut recorded);
        span.extensions_mut().insert(SpanIndex(self.push(recorded)));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let index = context.span(id).unwrap().extensions().get::<SpanIndex>().unwrap().0;
        values.record(&mut self.0.lock().unwrap()[index]);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let span = context.event_span(event);
        let parent = span.map(|span| span.extensions().get::<SpanIndex>().unwrap().0);
        let level = event.metadata().level().to_string();
        let mut recorded = Recorded { level, parent, ..Recorded::default() };
        event.record(&mut recorded);
        self.push(recorded);
    }
}
