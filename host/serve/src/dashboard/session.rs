//! Who is signed in: sessions of browsers, links that sign in once, and how often somebody may try.
//!
//! All of it is in memory alone: the end of the process ends every session. A cookie is 256 random bits of which only the
//! digest is kept, so that a copy of the memory of this table opens nothing. A session is a key's: it ends when the key
//! does, and has the role that the key has at that moment.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use harness_artifact::server::Rate;
use harness_sys::digest::digest;
use tokio_util::sync::CancellationToken;

use crate::key::hex;
use crate::rate::Meter;

/// Random bytes of a cookie, and of a link.
const BYTES: usize = 32;
/// How long a session lasts at most, and without a request, in milliseconds.
const LIFE: u64 = 12 * 3_600_000;
const IDLE: u64 = 30 * 60_000;
/// How long a link waits to be used.
const LINK: u64 = 10 * 60_000;
/// Sessions of one key. The oldest one ends when there is another.
const MOST: usize = 16;
/// Links of one key.
const MOST_LINKS: usize = 4;
/// Sign-ins that fail, for one key. Those with the identifier of no key share one such rate.
const FAILURES: Rate = Rate { per_minute: 10, burst: 10 };

/// Keys whose failures are counted one by one; those of further ones are counted together.
const MOST_METERS: usize = 10_000;

/// A cookie that nobody guesses.
pub(super) struct Token(pub(super) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    pub(super) fn random() -> Self {
        Self(hex::<BYTES>())
    }

    /// The same from a cookie, if it has the form of one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 2 * BYTES && text.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }

    /// What the forms of its pages have in them: who cannot read the cookie cannot make it.
    pub(super) fn of_forms(&self) -> String {
        digest(&format!("form of {}", self.0))
    }

    fn digest(&self) -> String {
        digest(&format!("session {}", self.0))
    }
}

/// All sessions and links of a server.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: Mutex<HashMap<String, Session>>,
    links: Mutex<HashMap<String, Link>>,
    failures: Mutex<HashMap<String, Meter>>,
}

#[derive(Debug)]
struct Session {
    key: String,
    began: u64,
    used: u64,
    ended: CancellationToken,
}

impl Session {
    fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.began) >= LIFE || now.saturating_sub(self.used) >= IDLE
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

#[derive(Debug)]
struct Link {
    key: String,
    until: u64,
}

/// A session that counts at this moment.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    /// The key that was signed in with.
    pub(super) key: String,
    /// Cancelled when the session ends.
    pub(super) ended: CancellationToken,
}

/// The table behind a lock. One that panicked in between has left it whole.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Times are milliseconds of a clock that does not go back.
impl Sessions {
    /// Begins a session of a key, always with a new cookie.
    pub(super) fn begin(&self, key: &str, now: u64) -> Token {
        let token = Token::random();
        let mut sessions = held(&self.sessions);
        sessions.retain(|_, session| !session.is_over(now));
        let mut own: Vec<(u64, String)> =
            sessions.iter().filter(|(_, one)| one.key == key).map(|(id, one)| (one.began, id.clone())).collect();
        own.sort();
        for (_, oldest) in own.iter().take(own.len().saturating_sub(MOST - 1)) {
            sessions.remove(oldest);
        }
        let ended = CancellationToken::new();
        sessions.insert(token.digest(), Session { key: key.to_owned(), began: now, used: now, ended });
        token
    }

    /// The session of a cookie. `uses` says whether a person asks: what a page asks for by itself keeps no session alive.
    pub(super) fn visit(&self, token: &Token, now: u64, uses: bool) -> Option<Visit> {
        let mut sessions = held(&self.sessions);
        let id = token.digest();
        let session = sessions.get_mut(&id)?;
        if session.is_over(now) {
            sessions.remove(&id);
            return None;
        }
        if uses {
            session.used = now;
        }
        Some(Visit { key: session.key.clone(), ended: session.ended.clone() })
    }

    /// Ends the session of a cookie, with the streams that it has open.
    pub(super) fn end(&self, token: &Token) {
        held(&self.sessions).remove(&token.digest());
    }

    /// A link that signs in with a key, once.
    pub(crate) fn link(&self, key: &str, now: u64) -> String {
        let token = Token::random();
        let mut links = held(&self.links);
        links.retain(|_, link| now < link.until);
        if links.values().filter(|link| link.key == key).count() >= MOST_LINKS {
            links.retain(|_, link| link.key != key);
        }
        links.insert(token.digest(), Link { key: key.to_owned(), until: now.saturating_add(LINK) });
        token.0
    }

    /// Whether a link can be used still. Looking does not use it.
    pub(super) fn has_link(&self, token: &Token, now: u64) -> bool {
        held(&self.links).get(&token.digest()).is_some_and(|link| now < link.until)
    }

    /// Uses a link up, and gives the key that it signs in with.
    pub(super) fn take_link(&self, token: &Token, now: u64) -> Option<String> {
        let link = held(&self.links).remove(&token.digest())?;
        (now < link.until).then_some(link.key)
    }

    /// Whether another attempt to sign in is looked at: `key` is the identifier of a key that there is. The seconds until
    /// the next one otherwise.
    pub(super) fn attempt(&self, key: Option<&str>, nanos: u64) -> Result<(), u64> {
        let mut failures = held(&self.failures);
        let has_room = failures.len() < MOST_METERS;
        let key = key.filter(|key| has_room || failures.contains_key(*key)).unwrap_or_default();
        let meter = failures.entry(key.to_owned()).or_insert_with(|| Meter::new(FAILURES));
        meter.take(nanos).map(|_| ()).map_err(|standing| standing.again.div_ceil(1_000_000_000).max(1))
    }

    /// The attempt had the right key: those of a person who signs in often are not counted.
    pub(super) fn succeeded(&self, key: &str) {
        held(&self.failures).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;

    fn is_there(sessions: &Sessions, token: &Token, now: u64, uses: bool) -> bool {
        sessions.visit(token, now, uses).is_some()
    }

    #[test]
    fn a_session_ends_without_requests_and_at_the_latest_after_its_life() {
        let sessions = Sessions::default();
        let token = sessions.begin("k", NOW);
        // What a page asks for by itself does not keep it.
        assert!(is_there(&sessions, &token, NOW + IDLE - 1, false));
        assert!(!is_there(&sessions, &token, NOW + IDLE, true));
        let token = sessions.begin("k", NOW);
        let mut at = NOW;
        while at + IDLE / 2 < NOW + LIFE {
            at += IDLE / 2;
            assert!(is_there(&sessions, &token, at, true), "{at}");
        }
        assert!(is_there(&sessions, &token, NOW + LIFE - 1, true));
        assert!(!is_there(&sessions, &token, NOW + LIFE, true));
        // It does not come back.
        assert!(!is_there(&sessions, &token, NOW, true));
    }

    #[test]
    fn only_the_cookie_itself_opens_a_session_and_only_until_it_ends() {
        let sessions = Sessions::default();
        let (token, other) = (sessions.begin("k", NOW), sessions.begin("k", NOW));
        assert_ne!(token.0, other.0);
        assert!(held(&sessions.sessions).keys().all(|kept| !kept.contains(&token.0)));
        for wrong in [Token::random(), Token(token.digest()), Token(token.of_forms())] {
            assert!(!is_there(&sessions, &wrong, NOW, true));
        }
        let visit = sessions.visit(&token, NOW, true).unwrap();
        assert!(!visit.ended.is_cancelled());
        sessions.end(&token);
        assert!(visit.ended.is_cancelled());
        assert!(!is_there(&sessions, &token, NOW, true) && is_there(&sessions, &other, NOW, true));
    }

    #[test]
    fn a_key_has_so_many_sessions_and_the_oldest_ends_first() {
        let sessions = Sessions::default();
        let others = sessions.begin("other", NOW);
        let all: Vec<Token> = (0..MOST as u64 + 2).map(|at| sessions.begin("k", NOW + at)).collect();
        let there: Vec<bool> = all.iter().map(|token| is_there(&sessions, token, NOW + 100, true)).collect();
        assert_eq!(there, [vec![false; 2], vec![true; MOST]].concat());
        assert!(is_there(&sessions, &others, NOW + 100, true));
    }

    #[test]
    fn a_link_is_used_once_and_not_after_its_time() {
        let sessions = Sessions::default();
        let token = Token::parse(&sessions.link("k", NOW)).unwrap();
        assert!(sessions.has_link(&token, NOW + LINK - 1) && sessions.has_link(&token, NOW));
        assert!(!sessions.has_link(&token, NOW + LINK));
        assert_eq!(sessions.take_link(&token, NOW).as_deref(), Some("k"));
        assert_eq!((sessions.take_link(&token, NOW), sessions.has_link(&token, NOW)), (None, false));
        let late = Token::parse(&sessions.link("k", NOW)).unwrap();
        assert_eq!(sessions.take_link(&late, NOW + LINK), None);
    }

    #[test]
    fn attempts_are_counted_for_each_key_and_together_for_those_that_there_are_not() {
        let sessions = Sessions::default();
        let tries = |key: Option<&str>| (0..20).filter(|_| sessions.attempt(key, NOW * 100).is_ok()).count();
        assert_eq!([tries(Some("a")), tries(Some("b")), tries(None), tries(None)], [10, 10, 10, 0]);
        sessions.succeeded("a");
        assert_eq!([tries(Some("a")), tries(Some("b"))], [10, 0]);
    }

    #[test]
    fn a_cookie_has_one_form() {
        let token = Token::random();
        assert!(Token::parse(&token.0).is_some());
        for wrong in ["", &token.0[1..], &format!("{}0", token.0), &token.0.replace(&token.0[..1], "g")] {
            assert!(Token::parse(wrong).is_none(), "{wrong}");
        }
    }
}
