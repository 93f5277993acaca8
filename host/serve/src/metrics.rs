//! What the server counts, for its operator. No label has a value that a tenant chose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    class: &'static str,
}

/// Counters and histograms of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: Family<Outcome, Counter>,
    seconds: Histogram,
    requests: Family<Status, Counter>,
    answers: Histogram,
    tenants: Gauge,
    runs: Gauge,
    cost: Counter<f64, AtomicU64>,
    egress: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        // From 50 us to 26 s, each bucket twice the one before.
        let buckets = || exponential_buckets(0.000_05, 2.0, 20);
        let (calls, seconds) = (Family::default(), Histogram::new(buckets()));
        let (requests, answers) = (Family::default(), Histogram::new(buckets()));
        let (tenants, runs) = (Gauge::default(), Gauge::default());
        let mut registry = Registry::with_prefix("harness");
        registry.register("calls", "Calls of tools that were made, by how they ended", calls.clone());
        registry.register_with_unit("call", "Time of calls, without their hooks", Unit::Seconds, seconds.clone());
        registry.register("requests", "Requests, by the class of their answer", requests.clone());
        registry.register_with_unit("request", "Time until the head of an answer", Unit::Seconds, answers.clone());
        registry.register("tenants", "Tenants", tenants.clone());
        registry.register("runs", "Runs under way", runs.clone());
        let cost = Counter::<f64, AtomicU64>::default();
        let unit = Unit::Other("dollars".to_owned());
        registry.register_with_unit("models_cost", "What models cost by the prices of the server", unit, cost.clone());
        let egress = Counter::default();
        let help = "Bytes that left the machine for tenants";
        registry.register_with_unit("egress", help, Unit::Bytes, egress.clone());
        Self { registry, calls, seconds, requests, answers, tenants, runs, cost, egress }
    }
}

impl Metrics {
    /// A call was made.
    pub fn called(&self, outcome: &'static str, took: Duration) {
        self.calls.get_or_create(&Outcome { outcome }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A request was answered.
    pub fn answered(&self, status: StatusCode, took: Duration) {
        let class = match status.as_u16() {
            0..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&Status { class }).inc();
        self.answers.observe(took.as_secs_f64());
    }

    /// All of it as OpenMetrics has it.
    ///
    /// # Errors
    ///
    /// That it cannot be written.
    pub fn text(&self, tenants: usize, runs: usize, cost: f64, egress: u64) -> Result<String, std::fmt::Error> {
        self.egress.inner().store(egress, Ordering::Relaxed);
        self.cost.inner().store(cost.to_bits(), Ordering::Relaxed);
        self.tenants.set(i64::try_from(tenants).unwrap_or(i64::MAX));
        self.runs.set(i64::try_from(runs).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
