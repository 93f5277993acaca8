//! Pages of listings. A cursor names the entry that a page ends with, so that nothing is kept of a client, and an entry that
//! comes or goes between two pages moves no other one.

use std::collections::BTreeMap;
use std::ops::Bound;

use rmcp::model::{CacheScope, ErrorData, PaginatedRequestParams};

use crate::elicit::Seals;

/// Entries of a page.
pub(crate) const PAGE: usize = 100;
/// How long a client may keep a listing, in milliseconds. Files may change at any time.
pub(crate) const FRESH_MS: u64 = 5_000;
/// Whose a listing is: what the policy of this project allows.
pub(crate) const SCOPE: CacheScope = CacheScope::Private;

/// The entries of a page, and the cursor of the next one, where there is one. `listing` is the method: a cursor of one is
/// none of another.
///
/// # Errors
///
/// That the cursor is not one that this server returned for this listing.
pub(crate) fn page<T: Clone>(
    seals: &Seals,
    listing: &str,
    asked: Option<PaginatedRequestParams>,
    all: &BTreeMap<String, T>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let cursor = asked.and_then(|page| page.cursor);
    let last = cursor
        .map(|cursor| {
            let unknown = || ErrorData::invalid_params("`cursor` is not one that this server returned", None);
            seals.open_cursor(listing, &cursor).ok_or_else(unknown)
        })
        .transpose()?;
    let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rest = all.range((begin, Bound::Unbounded));
    let entries: Vec<(&String, &T)> = rest.by_ref().take(PAGE).collect();
    let last = entries.last().filter(|_| rest.next().is_some());
    let next = last.map(|(key, _)| seals.seal_cursor(listing, key));
    Ok((entries.into_iter().map(|(_, entry)| entry.clone()).collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cursor: Option<String>) -> Option<PaginatedRequestParams> {
        Some(PaginatedRequestParams::default().with_cursor(cursor))
    }

    #[test]
    fn pages_have_all_entries_in_order() {
        let seals = Seals::new();
        let mut all: BTreeMap<String, usize> = (0..PAGE * 2).map(|n| (format!("{n:04}"), n)).collect();
        let (first, next) = page(&seals, "a/list", None, &all).unwrap();
        assert_eq!(first, (0..PAGE).collect::<Vec<_>>());
        // What goes and comes between two pages moves nothing.
        all.remove("0000");
        all.remove(&format!("{:04}", PAGE - 1));
        all.insert("0000a".to_owned(), 7777);
        let (second, end) = page(&seals, "a/list", at(next.clone()), &all).unwrap();
        assert_eq!(second, (PAGE..PAGE * 2).collect::<Vec<_>>());
        assert_eq!(end, None);
        assert_eq!(page(&seals, "a/list", at(next), &all).unwrap().0, second);
        assert_eq!(page(&seals, "a/list", None, &BTreeMap::<String, ()>::new()).unwrap(), (vec![], None));
    }

    #[test]
    fn a_cursor_is_good_for_its_listing_alone() {
        let seals = Seals::new();
        let all: BTreeMap<String, usize> = (0..=PAGE).map(|n| (format!("{n:04}"), n)).collect();
        let (_, next) = page(&seals, "a/list", None, &all).unwrap();
        for (seals, listing, cursor) in [
            (&seals, "b/list", next.clone().unwrap()),
            (&Seals::new(), "a/list", next.clone().unwrap()),
            (&seals, "a/list", format!("{}A", next.clone().unwrap())),
            (&seals, "a/list", String::new()),
            (&seals, "a/list", "2".to_owned()),
        ] {
            let refused = page(seals, listing, at(Some(cursor)), &all).unwrap_err();
            assert_eq!(refused.message, "`cursor` is not one that this server returned");
        }
        assert_eq!(page(&seals, "a/list", at(next), &all).unwrap(), (vec![PAGE], None));
    }
}
