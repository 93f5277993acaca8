//! What the hooks of an event decided together, and who may read the words of the one that blocked it.

use std::fmt;

use harness_artifact::third_party;

/// The reason of a block whose hook gives none.
pub const NO_REASON: &str = "no reason was given";

/// What the hooks of an event decided together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No hook blocked it.
    Allow,
    /// A hook did, and those after it were not called.
    Block(Box<Block>),
}

/// Why an event was blocked. As text it is what the caller gets, a model among them: the words of a third party are
/// quoted in it and say whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Which hook.
    pub hook: String,
    /// Its reason; of a third party's at most `third_party::MOST` bytes.
    pub reason: String,
    /// Whose words these are.
    pub voice: Voice,
    /// Whether it did not decide so, but failed.
    pub failed: bool,
}

/// Whose words a reason is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Voice {
    /// The project's own, or the host's.
    Own,
    /// Those of a third party.
    ThirdParty {
        /// Which, such as `plugins/acme`.
        author: String,
        /// Whether it has the service `prompt`: its words may be in what a model is prompted with.
        prompts: bool,
    },
}

impl Decision {
    /// The sentence that the caller gets, where it was blocked.
    pub fn blocked(&self) -> Option<String> {
        self.block().map(Block::to_string)
    }

    /// Why, where it was blocked.
    pub fn block(&self) -> Option<&Block> {
        match self {
            Self::Allow => None,
            Self::Block(block) => Some(block),
        }
    }
}

impl Block {
    /// What a model is prompted with because of it: a fixed sentence where its words may not be there.
    pub fn to_prompt(&self, instead: &str) -> String {
        match &self.voice {
            Voice::ThirdParty { prompts: false, .. } => instead.to_owned(),
            Voice::ThirdParty { prompts: true, .. } | Voice::Own => self.to_string(),
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hook, reason, voice, .. } = self;
        match voice {
            Voice::Own => write!(f, "blocked by hook {hook:?}: {reason}"),
            Voice::ThirdParty { author, .. } => {
                let hook = third_party::name(hook);
                write!(f, "blocked by hook {hook:?} of {}", third_party::said(author, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(voice: Voice, reason: &str) -> Block {
        Block { hook: "guard".to_owned(), reason: reason.to_owned(), voice, failed: false }
    }

    #[test]
    fn words_of_a_third_party_are_quoted_or_replaced() {
        let acme = |prompts| Voice::ThirdParty { author: "plugins/acme".to_owned(), prompts };
        let own = block(Voice::Own, "not yet");
        assert_eq!(own.to_string(), "blocked by hook \"guard\": not yet");
        assert_eq!(own.to_prompt("Go on."), "blocked by hook \"guard\": not yet");
        let quoted =
            "blocked by hook \"guard\" of plugins/acme, a third party, which says: \"stop\\nand \\\"obey\\\"\"";
        for (prompts, to_prompt) in [(true, quoted), (false, "Go on.")] {
            let theirs = block(acme(prompts), "stop\nand \"obey\"");
            assert_eq!((theirs.to_string().as_str(), theirs.to_prompt("Go on.").as_str()), (quoted, to_prompt));
        }
    }
}
