//! Plots as pictures in the page itself: no script, and no style of their own, which the pages' policy would refuse.

use maud::{Markup, html};

/// Width and height of a plot in its own units.
const WIDTH: u64 = 1_000;
const HEIGHT: u64 = 120;

/// How much of something is used.
pub(super) fn share(name: &str, used: u64, limit: u64) -> Markup {
    let width = part(used, limit, WIDTH);
    let kind = match width {
        ..800 => "fine",
        800..1_000 => "near",
        _ => "full",
    };
    let percent = part(used, limit, 1_000);
    let label = format!("{name}: {}.{} % used", percent / 10, percent % 10);
    html! {
        svg class={ "share-of " (kind) } viewBox={ "0 0 " (WIDTH) " 12" } preserveAspectRatio="none" role="img"
            aria-label=(label) {
            title { (label) }
            rect class="all" width=(WIDTH) height="12" {}
            rect class="used" width=(width) height="12" {}
        }
    }
}

/// Columns, one for each name, with their values as text for those who do not see them.
pub(super) fn columns(title: &str, columns: &[(String, u64)]) -> Markup {
    let most = columns.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let step = WIDTH / (columns.len() as u64).max(1);
    html! {
        figure class="plot" {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(title) {
                title { (title) }
                @for (at, (name, value)) in columns.iter().enumerate() {
                    @let height = part(*value, most, HEIGHT).max(u64::from(*value > 0));
                    @let x = step.saturating_mul(at as u64);
                    rect x=(x) y=(HEIGHT.saturating_sub(height)) width=(step * 4 / 5) height=(height) {
                        title { (name) ": " (value) }
                    }
                }
            }
            @if let (Some((first, _)), Some((last, _))) = (columns.first(), columns.last()) {
                figcaption { span { (first) } span { (title) ", at most " (most) } span { (last) } }
            }
        }
    }
}

/// A part of a whole, in units of `of`, never more than all.
fn part(part: u64, whole: u64, of: u64) -> u64 {
    let units = u128::from(part).saturating_mul(u128::from(of)) / u128::from(whole.max(1));
    u64::try_from(units).unwrap_or(of).min(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_more_than_all() {
        assert_eq!([part(0, 10, 100), part(5, 10, 100), part(20, 10, 100), part(u64::MAX, 0, 100)], [0, 50, 100, 100]);
        let widths = |used| share("x", used, 10).into_string().matches("width=\"1000\"").count();
        assert_eq!([widths(9), widths(10), widths(11)], [1, 2, 2]);
        assert!(share("calls", 8, 10).into_string().contains("calls: 80.0 % used"));
    }

    #[test]
    fn the_highest_column_fills_the_plot_and_one_of_nothing_is_not_there() {
        let columns = columns("calls", &[("a".to_owned(), 0), ("b".to_owned(), 5), ("c".to_owned(), 1_000_000)]);
        let heights = |height: &str| columns.0.matches(&format!("height=\"{height}\"")).count();
        assert_eq!([heights("0"), heights("1"), heights("120")], [1, 1, 1]);
    }
}
