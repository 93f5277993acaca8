//! The calls of one server during which it may ask a person, by requests of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value as Json;
use tokio::sync::mpsc;

use crate::elicit::{self, Answerer};
use crate::limits::FORMS;
use crate::message;

/// What a server asks a person.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: Json,
    pub(crate) params: Json,
}

/// Calls that have somebody to ask, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Askers(Mutex<Vec<(u64, mpsc::Sender<Asked>)>>);

/// What is asked during one call. It is asked no more when this is dropped.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    askers: &'a Askers,
    call: u64,
    asked: mpsc::Receiver<Asked>,
}

/// Where replies to a server go.
pub(crate) trait Replies: Sync {
    /// Sends one. Whether it was taken is the server's business.
    fn reply(&self, message: Vec<u8>) -> impl Future<Output = ()> + Send;
}

impl Askers {
    /// From now on a call may be asked.
    pub(crate) fn enter(&self, call: u64) -> Asking<'_> {
        let (asker, asked) = mpsc::channel(FORMS);
        self.list().push((call, asker));
        Asking { askers: self, call, asked }
    }

    /// Asks this call, or the one that has waited longest: all callers of a server have the same person. Gives back what
    /// nobody is there for, or has room for.
    pub(crate) fn ask(&self, call: Option<u64>, asked: Asked) -> Option<Asked> {
        let list = self.list();
        match list.iter().find(|(other, _)| call.is_none_or(|call| call == *other)) {
            Some((_, asker)) => asker.try_send(asked).err().map(mpsc::error::TrySendError::into_inner),
            None => Some(asked),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u64, mpsc::Sender<Asked>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.askers.list().retain(|(call, _)| *call != self.call);
    }
}

impl Asking<'_> {
    /// Waits for an answer, and meanwhile lets a person answer up to [`FORMS`] forms. What is asked when the answer is there is declined.
    pub(crate) async fn until<T>(
        mut self,
        answer: impl Future<Output = T>,
        answerer: &dyn Answerer,
        replies: &impl Replies,
    ) -> T {
        let mut answer = std::pin::pin!(answer);
        let mut shown = 0_usize;
        let answer = loop {
            let one = tokio::select! {
                biased;
                answer = &mut answer => break answer,
                Some(one) = self.asked.recv() => one,
            };
            shown = shown.saturating_add(1);
            let answerer = (shown <= FORMS).then_some(answerer);
            let (said, over) = tokio::select! {
                biased;
                answer = &mut answer => (Ok(elicit::declined()), Some(answer)),
                said = elicit::answer(answerer, &one.params) => (said, None),
            };
            let reply = replies.reply(message::response(&one.id, &said));
            if let Some(answer) = over {
                reply.await;
                break answer;
            }
            // A server that does not take the reply may still answer.
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                () = reply => {}
            }
        };
        self.asked.close();
        while let Ok(one) = self.asked.try_recv() {
            replies.reply(message::response(&one.id, &Ok(elicit::declined()))).await;
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(id: &str) -> Asked {
        Asked { id: json!(id), params: Json::Null }
    }

    #[test]
    fn a_call_is_asked_or_the_oldest_one_and_none_after_its_end() {
        let askers = Askers::default();
        let ask = |call, id: &str| askers.ask(call, asked(id)).map(|asked| asked.id);
        assert_eq!(ask(None, "nobody"), Some(json!("nobody")));
        let (mut one, mut other) = (askers.enter(3), askers.enter(4));
        assert_eq!((ask(None, "oldest"), ask(Some(4), "its own")), (None, None));
        assert_eq!(ask(Some(5), "of no call"), Some(json!("of no call")));
        assert_eq!(one.asked.try_recv().unwrap().id, "oldest");
        assert_eq!(other.asked.try_recv().unwrap().id, "its own");
        drop(one);
        assert_eq!(ask(None, "next"), None);
        assert_eq!(other.asked.try_recv().unwrap().id, "next");
        // No more at once than a call may show.
        assert!((0..FORMS).all(|_| ask(None, "one of many").is_none()));
        assert_eq!(ask(None, "too many"), Some(json!("too many")));
    }
}
