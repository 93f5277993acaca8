//! Consent: which of the rules that a plugin asks for are granted. A person answers at a terminal. Without one, the arguments
//! name the digest of what was reviewed, or grant nothing.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use harness_artifact::escape;
use harness_artifact::plugin::Rule;

use crate::confirm::{self, GivenUp, Line};
use crate::exit::Exit;
use crate::printer::Printer;

/// What a person is asked before a version of a plugin is used.
pub(super) const USE: &str = "Use this plugin?";

/// What a person said beforehand.
#[derive(Debug, Args)]
pub(crate) struct Granting {
    /// Grant all that was asked for, if this is the digest of what you reviewed: of the content and its signers. `harness
    /// plugin show` prints it.
    #[arg(long, value_name = "sha256:DIGEST")]
    pub(crate) grant_digest: Option<String>,

    /// Grant nothing of what was asked for.
    #[arg(long, value_name = "WHAT", conflicts_with = "grant_digest")]
    pub(crate) grant: Option<Nothing>,
}

/// What is granted in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Nothing {
    None,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Consent {
    /// The plugin is used, with these rules.
    Given(Vec<Rule>),
    /// It is not.
    Refused,
    /// Nobody was asked: there is no terminal, and the arguments do not decide.
    Nobody,
}

impl Granting {
    /// Whether nothing is to be granted.
    pub(super) fn is_none(&self) -> bool {
        self.grant == Some(Nothing::None)
    }

    /// Decides on rules of a plugin that was shown. `review` is the digest of what was shown, and `question` what a
    /// person is asked.
    ///
    /// # Errors
    ///
    /// It is another plugin than the one that was reviewed, which was reported.
    pub(super) fn decide(
        &self,
        review: &str,
        rules: &[Rule],
        question: &str,
        printer: Printer,
    ) -> Result<Consent, Exit> {
        if let Some(reviewed) = &self.grant_digest {
            if reviewed == review {
                return Ok(Consent::Given(rules.to_vec()));
            }
            let why = format!("the plugin is {review}, and {} was reviewed", escape::line(reviewed));
            printer.error(&why, &[], Some("review it again with `harness plugin show`"));
            return Err(Exit::Denied);
        }
        if self.is_none() {
            return Ok(Consent::Given(Vec::new()));
        }
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(Consent::Nobody);
        }
        Ok(ask(rules, question, printer))
    }
}

/// Asks the person at the terminal. Whatever is no yes is a no.
fn ask(rules: &[Rule], question: &str, printer: Printer) -> Consent {
    let _shown = confirm::forget_typed();
    let question = printer.paint(question, "1");
    let choices = match rules {
        [] => "[y]es, [N]o",
        _ => "[y]es and grant all of it, [r]ule by rule, [N]o",
    };
    match answer(&format!("{question} {choices}: "), printer).as_str() {
        "y" | "yes" => Consent::Given(rules.to_vec()),
        "r" | "rule" if !rules.is_empty() => {
            let granted = rules.iter().enumerate().filter(|(number, rule)| {
                let words = escape::line(&rule.to_string()).into_owned();
                let question = format!("  {}. {words}? [y]es, [N]o: ", number.saturating_add(1));
                matches!(answer(&question, printer).as_str(), "y" | "yes")
            });
            Consent::Given(granted.map(|(_, rule)| rule.clone()).collect())
        }
        _ => Consent::Refused,
    }
}

fn answer(question: &str, printer: Printer) -> String {
    printer.ask(question);
    match confirm::line(printer, &GivenUp::default().seen()) {
        Line::Typed(text) => text.trim().to_ascii_lowercase(),
        Line::None => String::new(),
    }
}

/// Says that nobody was there to consent.
pub(super) fn nobody(review: &str, printer: Printer) -> Exit {
    let hint =
        format!("run it at a terminal, grant what you reviewed with `--grant-digest {review}`, or use `--grant none`");
    printer.error("nobody consented to what the plugin asks for", &[], Some(&hint));
    Exit::Denied
}
