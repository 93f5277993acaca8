//! Budgets: what a tenant may use of calls, fuel, tokens, money and egress in a day and in a month of UTC.
//!
//! A part of what is left is leased: the store has it before it is spent, and it is spent in memory. So a call costs no
//! write, and what is spent is never more than what the store knows of, whatever becomes of the process. After an end in
//! order the store has exactly what was spent; after a kill, what was leased counts as spent. A call is let in while
//! anything is left: together they exceed a budget by no more than one call for each that is under way.

use std::sync::{Arc, Mutex, PoisonError};

use crate::prices::{MICRO, dollars};
use harness_artifact::server::Budgets;
use harness_store::{Expected, Store, StoreError, Versioned};
use serde_json::{Value as Json, json};
use time::format_description::well_known::Rfc3339;
use time::{Date, Duration, Month, OffsetDateTime, Time};

/// Where the store has what is leased: `TENANT/BUDGET/PERIOD`.
pub(crate) const BUCKET: &str = "budgets";
/// The part of what is left that is leased at once.
const PART: u64 = 20;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Calls of tools.
    Calls,
    /// Units of fuel, those of hooks included.
    Fuel,
    /// Tokens that the services of models count.
    Tokens,
    /// What those cost, in picodollars.
    Cost,
    /// Bytes that leave the machine.
    Egress,
}

impl Resource {
    /// The word for what it is counted in.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Fuel => "fuel",
            Self::Tokens => "tokens",
            Self::Cost => "usd",
            Self::Egress => "bytes",
        }
    }

    /// An amount as it is shown: a number, or the text of an exact one of dollars.
    pub(crate) fn shown(self, amount: u64) -> Json {
        if self == Self::Cost { json!(dollars(amount)) } else { json!(amount) }
    }
}

/// Over how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    Day,
    Month,
}

/// A budget that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// Its name, such as `fuel_per_day`.
    pub budget: &'static str,
    /// What it is of.
    pub resource: Resource,
    /// What it is.
    pub limit: u64,
    /// When the next period begins, in milliseconds since 1970.
    pub resets: u64,
}

impl Exceeded {
    /// That it is used up, as a sentence without a full stop.
    pub(crate) fn text(&self) -> String {
        let Self { budget, resource, limit, .. } = self;
        match resource {
            Resource::Cost => format!("the budget `{budget}` of {} US dollars is used up", dollars(*limit)),
            _ => format!("the budget `{budget}` of {limit} is used up"),
        }
    }

    /// The same with who set it, and when there is more.
    pub(crate) fn in_full(&self, set_by: &str) -> String {
        let seconds = i64::try_from(self.resets / 1000).unwrap_or(i64::MAX);
        let moment = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|at| at.format(&Rfc3339).ok());
        let until = moment.map(|moment| format!(", until {moment}")).unwrap_or_default();
        format!("{}, set by {set_by}{until}", self.text())
    }
}

/// Why a call is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A budget is used up.
    Exceeded(Exceeded),
    /// What it may use cannot be leased.
    Store(StoreError),
}

/// One budget in one period.
#[derive(Debug)]
struct Account {
    name: &'static str,
    resource: Resource,
    span: Span,
    limit: Option<u64>,
    /// Leased at once where there is no limit.
    slice: u64,
    period: String,
    /// When that ends.
    until: u64,
    leased: u64,
    spent: u64,
    /// That of what the store has; 0: nothing.
    version: u64,
    /// Whether the store was asked for this period.
    is_known: bool,
}

impl Account {
    fn new(name: &'static str, resource: Resource, span: Span, limit: Option<u64>, slice: u64) -> Self {
        let period = String::new();
        Self { name, resource, span, limit, slice, period, until: 0, leased: 0, spent: 0, version: 0, is_known: false }
    }

    /// Begins another period, if this one is over.
    fn turn(&mut self, now: u64) {
        if now < self.until {
            return;
        }
        let (period, until) = period(self.span, now);
        let (name, resource, span, limit, slice) = (self.name, self.resource, self.span, self.limit, self.slice);
        *self = Self { period, until, ..Self::new(name, resource, span, limit, slice) };
    }

    fn exceeded(&self) -> Option<Exceeded> {
        let limit = self.limit.filter(|limit| self.spent >= *limit)?;
        Some(Exceeded { budget: self.name, resource: self.resource, limit, resets: self.until })
    }

    fn wants_lease(&self) -> bool {
        !self.is_known || self.spent >= self.leased
    }

    /// What is to be leased together after the next lease.
    fn next(&self) -> u64 {
        let used = self.leased.max(self.spent);
        match self.limit {
            Some(limit) => used.saturating_add((limit.saturating_sub(used) / PART).max(1)).min(limit.max(used)),
            None => used.saturating_add(self.slice),
        }
    }
}

/// The period that a moment is in, and when it ends.
fn period(span: Span, now: u64) -> (String, u64) {
    let moment = i64::try_from(now / 1000).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let date = moment.map_or(Date::MIN, OffsetDateTime::date);
    let (year, month) = (date.year(), u8::from(date.month()));
    let (name, next) = match span {
        Span::Day => (format!("{year:04}-{month:02}-{:02}", date.day()), date.checked_add(Duration::DAY)),
        Span::Month => {
            let year = if date.month() == Month::December { year.saturating_add(1) } else { year };
            (format!("{:04}-{month:02}", date.year()), Date::from_calendar_date(year, date.month().next(), 1).ok())
        }
    };
    let end = next.map(|next| next.with_time(Time::MIDNIGHT).assume_utc().unix_timestamp());
    (name, end.and_then(|end| u64::try_from(end).ok()).map_or(u64::MAX, |end| end.saturating_mul(1000)))
}

/// The budgets of one tenant.
#[derive(Debug)]
pub struct Ledger {
    tenant: String,
    store: Arc<dyn Store>,
    accounts: Mutex<Vec<Account>>,
    /// One lease at a time.
    leasing: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// The budgets of a tenant, of which nothing is read yet.
    /// Costs are counted where they are bounded, or models have prices.
    pub fn new(tenant: &str, budgets: &Budgets, are_priced: bool, store: Arc<dyn Store>) -> Self {
        let mut accounts = vec![
            Account::new("calls_per_day", Resource::Calls, Span::Day, budgets.calls_per_day, 1_000),
            Account::new("fuel_per_day", Resource::Fuel, Span::Day, budgets.fuel_per_day, 1_000_000_000),
            Account::new("fuel_per_month", Resource::Fuel, Span::Month, budgets.fuel_per_month, 10_000_000_000),
            Account::new("tokens_per_day", Resource::Tokens, Span::Day, budgets.tokens_per_day, 100_000),
            Account::new("tokens_per_month", Resource::Tokens, Span::Month, budgets.tokens_per_month, 1_000_000),
        ];
        for (name, span, limit, slice) in [
            ("egress_per_day", Span::Day, budgets.egress_per_day, 100 << 20),
            ("egress_per_month", Span::Month, budgets.egress_per_month, 1 << 30),
        ] {
            accounts.push(Account::new(name, Resource::Egress, span, limit, slice));
        }
        for (name, span, limit) in
            [("cost_per_day", Span::Day, budgets.cost_per_day), ("cost_per_month", Span::Month, budgets.cost_per_month)]
        {
            if limit.is_some() || are_priced {
                let limit = limit.map(|limit| limit.saturating_mul(MICRO));
                accounts.push(Account::new(name, Resource::Cost, span, limit, 1_000_000 * MICRO));
            }
        }
        let (accounts, leasing) = (Mutex::new(accounts), tokio::sync::Mutex::default());
        Self { tenant: tenant.to_owned(), store, accounts, leasing }
    }

    /// Lets a call in at this moment, if anything is left for it in each budget.
    ///
    /// # Errors
    ///
    /// The budget that is used up, or that nothing can be leased.
    pub async fn admit(&self, now: u64) -> Result<(), Refused> {
        self.admit_of(now, |_| true).await
    }

    /// Lets something in that uses only some of what is counted.
    ///
    /// # Errors
    ///
    /// As for [`admit`](Self::admit).
    pub async fn admit_of(&self, now: u64, is_used: impl Fn(Resource) -> bool) -> Result<(), Refused> {
        if self.is_ready(now, &is_used)? {
            return Ok(());
        }
        let _one = self.leasing.lock().await;
        while !self.is_ready(now, &is_used)? {
            self.lease(&is_used).await.map_err(Refused::Store)?;
        }
        Ok(())
    }

    /// Whether there is a budget of this.
    pub fn bounds(&self, resource: Resource) -> bool {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.iter().any(|account| account.resource == resource && account.limit.is_some())
    }

    /// Counts what was used. What was admitted in one period and ends in the next counts for the next.
    pub fn spend(&self, now: u64, resource: Resource, amount: u64) {
        self.each(|account| {
            account.turn(now);
            if account.resource == resource {
                account.spent = account.spent.saturating_add(amount);
            }
        });
    }

    /// Gives back what was leased and not spent: at the end of the process.
    ///
    /// # Errors
    ///
    /// That the store has more than was spent, still.
    pub async fn settle(&self) -> Result<(), StoreError> {
        let _one = self.leasing.lock().await;
        let due: Vec<_> = {
            let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            accounts
                .iter()
                .filter(|account| account.is_known && account.leased != account.spent)
                .map(|account| (account.name, self.key(account), account.version, account.spent))
                .collect()
        };
        for (name, key, version, spent) in due {
            let expected = if version == 0 { Expected::Absent } else { Expected::Version(version) };
            let version = self.store.put(BUCKET, &key, expected, spent.to_string().into_bytes()).await?;
            self.keep(name, &key, version, spent);
        }
        Ok(())
    }

    /// What was used so far, and what may be.
    pub fn shown(&self, now: u64) -> Vec<Json> {
        let mut shown = Vec::new();
        self.each(|account| {
            account.turn(now);
            shown.push(json!({
                "budget": account.name,
                "unit": account.resource.unit(),
                "period": account.period,
                "used": account.resource.shown(account.spent),
                "limit": account.limit.map(|limit| account.resource.shown(limit)),
                "resets": account.until,
            }));
        });
        shown
    }

    /// Reads what the store has of this period, so that it can be shown.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn read(&self, now: u64) -> Result<(), StoreError> {
        let _one = self.leasing.lock().await;
        self.each(|account| account.turn(now));
        loop {
            let unread = {
                let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
                accounts.iter().find(|account| !account.is_known).map(|account| (account.name, self.key(account)))
            };
            let Some((name, key)) = unread else { return Ok(()) };
            self.know(name, &key).await?;
        }
    }

    fn each(&self, mut work: impl FnMut(&mut Account)) {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(|account| work(account));
    }

    fn key(&self, account: &Account) -> String {
        format!("{}/{}/{}", self.tenant, account.name, account.period)
    }

    /// Whether everything that a call uses is leased.
    fn is_ready(&self, now: u64, is_used: &impl Fn(Resource) -> bool) -> Result<bool, Refused> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ready = true;
        for account in accounts.iter_mut().filter(|account| is_used(account.resource)) {
            account.turn(now);
            if let Some(exceeded) = account.exceeded().filter(|_| account.is_known) {
                return Err(Refused::Exceeded(exceeded));
            }
            ready &= !account.wants_lease();
        }
        Ok(ready)
    }

    /// Leases more for the first account that wants it.
    async fn lease(&self, is_used: &impl Fn(Resource) -> bool) -> Result<(), StoreError> {
        let wanted = {
            let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            let account = accounts.iter().find(|account| is_used(account.resource) && account.wants_lease());
            account.map(|one| (one.name, self.key(one), one.is_known, one.version, one.next()))
        };
        let Some((name, key, is_known, version, next)) = wanted else { return Ok(()) };
        if !is_known {
            return self.know(name, &key).await;
        }
        let expected = if version == 0 { Expected::Absent } else { Expected::Version(version) };
        let version = self.store.put(BUCKET, &key, expected, next.to_string().into_bytes()).await?;
        self.keep(name, &key, version, next);
        Ok(())
    }

    /// Reads what is leased in the period of an account: of another process of this server, or before it was started.
    async fn know(&self, name: &'static str, key: &str) -> Result<(), StoreError> {
        let found = self.store.get(BUCKET, key).await?;
        let Versioned { version, value } = found.unwrap_or(Versioned { version: 0, value: b"0".to_vec() });
        let leased = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
        let leased: u64 =
            leased.ok_or_else(|| StoreError::Failed(format!("`{key}` of the budgets is not a number")))?;
        self.each(|account| {
            if account.name == name && self.key(account) == key {
                (account.is_known, account.version, account.leased) = (true, version, leased);
                account.spent = account.spent.saturating_add(leased);
            }
        });
        Ok(())
    }

    fn keep(&self, name: &'static str, key: &str, version: u64, leased: u64) {
        self.each(|account| {
            if account.name == name && self.key(account) == key {
                (account.version, account.leased) = (version, leased);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use harness_store::Memory;

    use super::*;

    /// 2026-11-30T23:59:59Z.
    const LATE: u64 = 1_796_083_199_000;

    fn ledger(store: &Arc<dyn Store>, calls: u64) -> Ledger {
        let budgets = Budgets { calls_per_day: Some(calls), ..Budgets::default() };
        Ledger::new("acme", &budgets, false, store.clone())
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(Memory::default())
    }

    async fn call(ledger: &Ledger, now: u64) -> Result<(), Refused> {
        ledger.admit(now).await?;
        ledger.spend(now, Resource::Calls, 1);
        Ok(())
    }

    #[test]
    fn periods_end_where_the_next_begins() {
        assert_eq!(period(Span::Day, LATE), ("2026-11-30".to_owned(), LATE + 1_000));
        assert_eq!(period(Span::Day, LATE + 1_000), ("2026-12-01".to_owned(), LATE + 86_401_000));
        assert_eq!(period(Span::Month, LATE), ("2026-11".to_owned(), LATE + 1_000));
        assert_eq!(period(Span::Month, LATE + 1_000), ("2026-12".to_owned(), LATE + 1_000 + 31 * 86_400_000));
    }

    #[tokio::test]
    async fn a_budget_ends_exactly_and_begins_anew() {
        let ledger = ledger(&store(), 50);
        for _ in 0..50 {
            assert_eq!(call(&ledger, LATE).await, Ok(()));
        }
        let exceeded = Exceeded { budget: "calls_per_day", resource: Resource::Calls, limit: 50, resets: LATE + 1_000 };
        assert_eq!(call(&ledger, LATE).await, Err(Refused::Exceeded(exceeded)));
        assert_eq!(call(&ledger, LATE + 1_000).await, Ok(()));
        assert_eq!(ledger.shown(LATE + 1_000)[0]["used"], 1);
    }

    /// However often the process is killed or ends in order, no more is used than there is, and nothing is lost in order.
    #[tokio::test]
    async fn what_was_leased_counts_after_a_kill_and_what_was_spent_after_an_end() {
        let store = store();
        let mut used = 0;
        for is_killed in [false, true, false, true, true] {
            let ledger = ledger(&store, 1_000);
            for _ in 0..30 {
                used += u64::from(call(&ledger, LATE).await.is_ok());
            }
            let before = ledger.shown(LATE)[0]["used"].as_u64().unwrap();
            if !is_killed {
                ledger.settle().await.unwrap();
            }
            let next = self::ledger(&store, 1_000);
            next.read(LATE).await.unwrap();
            let after = next.shown(LATE)[0]["used"].as_u64().unwrap();
            assert!(if is_killed { after >= before } else { after == before }, "{before} {after}");
        }
        let last = ledger(&store, 1_000);
        while call(&last, LATE).await.is_ok() {
            used += 1;
        }
        assert!((700..=1_000).contains(&used), "{used}");
    }

    #[tokio::test]
    async fn many_at_once_exceed_it_by_no_more_than_those_under_way() {
        let ledger = Arc::new(ledger(&store(), 100));
        let calls = (0..500).map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { call(&ledger, LATE).await.is_ok() })
        });
        let mut made = 0;
        for call in calls.collect::<Vec<_>>() {
            made += u64::from(call.await.unwrap());
        }
        // One thread: no two are between `admit` and `spend` together.
        assert_eq!(made, 100);
    }
}
