//! What the services of models charge: the prices of the configuration, and what all tenants have spent by them.
//!
//! Amounts are whole numbers of picodollars, millionths of a millionth: a price of six decimal places for a million tokens is
//! exact for one.

use std::sync::atomic::{AtomicU64, Ordering};

use harness_artifact::server::ModelPrice;
use harness_provider::Usage;

/// Picodollars of a microdollar, and of a dollar.
pub(crate) const MICRO: u64 = 1_000_000;
const DOLLAR: u64 = 1_000_000 * MICRO;

/// The prices of a server.
#[derive(Debug, Default)]
pub struct Prices {
    table: Vec<ModelPrice>,
    /// What was spent since the start, in picodollars.
    spent: AtomicU64,
}

impl Prices {
    /// Those of the configuration. Of several that fit a model, the first counts.
    pub fn new(table: Vec<ModelPrice>) -> Self {
        Self { table, spent: AtomicU64::new(0) }
    }

    /// Whether there are any.
    pub(crate) fn are_set(&self) -> bool {
        !self.table.is_empty()
    }

    /// The price of a model, if it has one.
    pub(crate) fn of(&self, model: &str) -> Option<&ModelPrice> {
        self.table.iter().find(|price| fits(&price.model, model))
    }

    /// Counts what was spent.
    pub(crate) fn count(&self, picodollars: u64) {
        self.spent.fetch_add(picodollars, Ordering::Relaxed);
    }

    /// Dollars that all tenants have spent since the start.
    pub(crate) fn spent(&self) -> f64 {
        let spent = self.spent.load(Ordering::Relaxed);
        let small = |part: u64| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
        // A metric has no more than nine decimal places.
        small(spent / DOLLAR) + small(spent % DOLLAR / 1_000) / 1e9
    }
}

/// What the tokens of a reply cost, in picodollars.
pub(crate) fn cost(price: &ModelPrice, usage: Usage) -> u64 {
    let input = price.input.saturating_mul(usage.input_tokens);
    input.saturating_add(price.output.saturating_mul(usage.output_tokens))
}

/// Picodollars as a decimal number of dollars, exactly.
pub(crate) fn dollars(picodollars: u64) -> String {
    let whole = picodollars / DOLLAR;
    let rest = format!("{:012}", picodollars % DOLLAR);
    match rest.trim_end_matches('0') {
        "" => whole.to_string(),
        rest => format!("{whole}.{rest}"),
    }
}

/// Whether a pattern covers the name of a model. A `*` stands for any characters.
fn fits(pattern: &str, model: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| model.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_names() {
        for (pattern, model, is_covered) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-4o*", "gpt-4o-mini", true),
            ("*", "anything", true),
            ("*", "", true),
            ("claude-*-4*", "claude-opus-4-1", true),
            ("claude-*-4*", "claude-opus-3", false),
            ("*mini", "gpt-4o-mini", true),
            ("*mini", "gpt-4o-mini-2", false),
            ("a*a", "a", false),
            ("a**b", "axb", true),
        ] {
            assert_eq!(fits(pattern, model), is_covered, "{pattern} {model}");
        }
    }

    #[test]
    fn amounts_are_exact() {
        let price = ModelPrice { model: "*".to_owned(), input: 37_500, output: 600_000 };
        let of = |input_tokens, output_tokens| dollars(cost(&price, Usage { input_tokens, output_tokens }));
        assert_eq!(of(1_000_000, 1_000_000), "0.6375");
        assert_eq!(of(1, 0), "0.0000000375");
        assert_eq!((of(0, 0), dollars(12_000_000_000_000)), ("0".to_owned(), "12".to_owned()));
    }

    #[test]
    fn the_first_that_fits_counts() {
        let price = |model: &str, input| ModelPrice { model: model.to_owned(), input, output: 0 };
        let prices = Prices::new(vec![price("a-1", 1), price("a*", 2)]);
        let of = |model: &str| prices.of(model).map(|price| price.input);
        assert_eq!((of("a-1"), of("a-2"), of("b")), (Some(1), Some(2), None));
        prices.count(1_500_000_000_000);
        assert!((prices.spent() - 1.5).abs() < 1e-9);
    }
}
