//! The values of a project's secrets and of its models' keys, read once, and the scan for them.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::super::env::Variables;
use super::scanner::{self, Scanner};
use harness_policy::refusal::Refusal;
use harness_policy::secret::{Holder, Secret};
use harness_sys as sys;

/// Bytes of a value at least: shorter ones would be found in what has nothing to do with them, and guessed.
pub const MIN_VALUE: usize = 8;
/// Bytes of a value at most: more than any key, and all its forms take some memory.
pub const MAX_VALUE: usize = 16 << 10;

/// The secrets of a project with their values, and the keys of its models, which are for nobody's use. They are read when
/// it is made, and not again.
#[derive(Debug, Default)]
pub struct Vault {
    known: Vec<Known>,
    scanner: Option<Scanner>,
    /// Where the files are that hold values, as they are written and as they really are.
    files: Vec<PathBuf>,
}

#[derive(Debug)]
struct Known {
    what: What,
    value: Given,
}

#[derive(Debug)]
enum What {
    Secret(Secret),
    /// The key of a model, in this variable.
    Key(String),
}

impl Known {
    fn secret(&self) -> Option<&Secret> {
        if let What::Secret(secret) = &self.what { Some(secret) } else { None }
    }

    /// What a note instead of its value says.
    fn name(&self) -> &str {
        match &self.what {
            What::Secret(secret) => &secret.name,
            What::Key(variable) => variable,
        }
    }

    fn is_in(&self, variable: &str) -> bool {
        match &self.what {
            What::Secret(secret) => matches!(&secret.holder, Holder::Variable(name) if name == variable),
            What::Key(name) => name == variable,
        }
    }
}

/// The value of a secret, or why there is none, in words that hold nothing of it.
#[derive(Clone)]
pub struct Given(Result<Box<str>, String>);

/// Without the value.
impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Ok(_) => "a value",
            Err(why) => why,
        })
    }
}

impl Given {
    /// A text as a holder has it: one line's end after it is not part of the value.
    pub fn text(text: &str) -> Self {
        let value = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
        Self(match value.len() {
            0 => Err("it is empty".to_owned()),
            length @ 1..MIN_VALUE => Err(format!("it has {length} bytes, and a secret has at least {MIN_VALUE}")),
            MIN_VALUE..=MAX_VALUE if value.contains('\0') => Err("there is a NUL in it".to_owned()),
            MIN_VALUE..=MAX_VALUE => Ok(value.into()),
            _ => Err(format!("it has over {MAX_VALUE} bytes")),
        })
    }

    fn named(self, holder: impl Fn() -> String) -> Self {
        Self(self.0.map_err(|why| format!("{} holds no secret: {why}", holder())))
    }
}

/// The value of a secret of a project in a folder.
pub(super) fn read(holder: &Holder, root: &Path, variables: &Variables) -> Given {
    match holder {
        Holder::Variable(name) => match variables.value(name) {
            Some(text) => Given::text(&text).named(|| format!("the variable `{name}`")),
            None => Given(Err(format!("the variable `{name}` is not set"))),
        },
        Holder::File(path) => match sys::read_secret(&place(path, root, variables), MAX_VALUE) {
            Ok(text) => Given::text(&text).named(|| format!("the file `{path}`")),
            Err(error) => Given(Err(format!("the file `{path}` cannot be read: {error}"))),
        },
    }
}

/// Where a file of a secret is.
fn place(path: &str, root: &Path, variables: &Variables) -> PathBuf {
    match (path.strip_prefix("~/"), variables.value("HOME")) {
        (Some(below), Some(home)) => Path::new(&home).join(below),
        _ => root.join(path),
    }
}

/// Where the file of a secret is that is in one: as it really is, where it is there, and as it is written.
fn files(holder: &Holder, root: &Path, variables: &Variables) -> Vec<PathBuf> {
    match holder {
        Holder::Variable(_) => Vec::new(),
        Holder::File(path) => {
            let place = place(path, root, variables);
            sys::real_path(&place).into_iter().chain([place]).collect()
        }
    }
}

impl Vault {
    /// Reads the values of secrets, those of files from the folder that holds `.harness/`, and the keys of models, from
    /// these variables. A secret that cannot be read is an error of who uses it; a key that is too short to be looked for
    /// is not.
    pub fn open<'a>(
        secrets: impl IntoIterator<Item = &'a Secret>,
        keys: impl IntoIterator<Item = &'a str>,
        root: &Path,
        variables: &Variables,
    ) -> Self {
        let read = |secret: &Secret| Known {
            value: read(&secret.holder, root, variables),
            what: What::Secret(secret.clone()),
        };
        let mut known: Vec<Known> = secrets.into_iter().map(read).collect();
        for variable in keys {
            if !known.iter().any(|one| one.is_in(variable)) {
                let value = Given::text(variables.value(variable).unwrap_or_default().trim());
                known.push(Known { what: What::Key(variable.to_owned()), value });
            }
        }
        let files =
            known.iter().filter_map(Known::secret).flat_map(|secret| files(&secret.holder, root, variables)).collect();
        Self { files, ..Self::knowing(known) }
    }

    /// Secrets with their values, from wherever a program has them.
    pub fn of(secrets: Vec<(Secret, Given)>) -> Self {
        let known = |(secret, value)| Known { what: What::Secret(secret), value };
        Self::knowing(secrets.into_iter().map(known).collect())
    }

    fn knowing(mut known: Vec<Known>) -> Self {
        let values = known.iter().filter_map(|known| Some((known.name(), &**known.value.0.as_ref().ok()?)));
        match Scanner::new(values) {
            Ok(scanner) => Self { known, scanner, files: Vec::new() },
            // What cannot be looked for is not used either.
            Err(error) => {
                for one in &mut known {
                    one.value = Given(Err(format!("it cannot be searched for: {error}")));
                }
                Self { known, scanner: None, files: Vec::new() }
            }
        }
    }

    /// The secrets without a value, by name, and why.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known.iter().filter_map(|one| Some((&*one.secret()?.name, one.value.0.as_ref().err()?.as_str())))
    }

    /// Where the files are that hold values, as they are written and as they really are.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Whether a variable of the host's environment holds a secret or a key: no script and no command gets that one by its
    /// name.
    pub fn holds_variable(&self, variable: &str) -> bool {
        self.known.iter().any(|one| one.is_in(variable))
    }

    /// Why a variable is not read like others, where it holds a secret or a key.
    pub fn decide_variable(&self, variable: &str) -> Result<(), Refusal> {
        match self.known.iter().find(|one| one.is_in(variable)).map(|one| &one.what) {
            None => Ok(()),
            Some(What::Key(_)) => Err(Refusal::always(format!(
                "the variable `{variable}` holds the key of a model, which no script sees"
            ))),
            Some(What::Secret(Secret { name, .. })) => {
                let reason = format!("the variable `{variable}` holds the secret `{name}`, which no script sees");
                Err(Refusal::new(reason, used(name)))
            }
        }
    }

    /// Why something does not go out that holds the value of what has this name.
    pub fn keeps(&self, name: &str) -> Refusal {
        let reason = format!("what would go out holds the value of {}", self.called(name));
        match self.secret(name) {
            Some(_) => Refusal::new(reason, used(name)),
            None => Refusal::always(reason),
        }
    }

    /// What has this name, in words.
    pub(super) fn called(&self, name: &str) -> String {
        match self.secret(name) {
            Some(_) => format!("the secret `{name}`"),
            None => format!("`{name}`, the key of a model"),
        }
    }

    pub(super) fn secret(&self, name: &str) -> Option<&Secret> {
        self.known.iter().filter_map(Known::secret).find(|secret| secret.name == name)
    }

    /// The value of a secret.
    pub(super) fn value(&self, name: &str) -> Result<&str, Refusal> {
        let of = |one: &&Known| one.secret().is_some_and(|secret| secret.name == name);
        let value = self.known.iter().find(of).map(|one| &one.value.0);
        match value {
            Some(Ok(value)) => Ok(value),
            Some(Err(why)) => {
                let hint = "`harness doctor` lists all secrets";
                Err(Refusal::new(format!("the secret `{name}` has no value: {why}"), hint))
            }
            // The grant names it, and so does the policy that the grant is from.
            None => Err(Refusal::always(format!("there is no secret `{name}`"))),
        }
    }

    /// The value of a secret for a variable of a server that the policy names it in. Nothing else is given to.
    ///
    /// # Errors
    ///
    /// Where it has no value.
    pub fn open_for_server(&self, name: &str) -> Result<&str, Refusal> {
        self.value(name)
    }

    /// Whether there is anything to look for.
    pub fn scans(&self) -> bool {
        self.scanner.is_some()
    }

    /// Bytes of the longest form of a value.
    pub fn longest(&self) -> usize {
        self.scanner.as_ref().map_or(0, Scanner::longest)
    }

    /// The name of a secret whose value a text holds, in any of its forms.
    pub fn find(&self, text: &str) -> Option<&str> {
        self.scanner.as_ref()?.find(text)
    }

    /// Puts `[redacted:NAME]` instead of each value in a text, in any of its forms.
    pub fn redact(&self, text: &mut String) {
        self.redact_within(text, usize::MAX);
    }

    /// The same, and cuts the text to `cap` bytes at least where there is more: what is after them is only there to see
    /// whether a value begins before.
    pub fn redact_within(&self, text: &mut String, cap: usize) {
        match &self.scanner {
            Some(scanner) => scanner.redact_within(text, cap),
            None => text.truncate(text.floor_char_boundary(cap)),
        }
    }

    /// The same in every text, key and number of a JSON value.
    pub fn redact_json(&self, value: &mut Json) {
        if let Some(scanner) = &self.scanner {
            scanner.redact_json(value);
        }
    }

    /// Takes from a text that is still coming what can be shown of it, with notes: what may be the beginning of a value
    /// waits for what follows.
    pub fn take_shown(&self, held: &mut String) -> String {
        let Some(scanner) = &self.scanner else { return std::mem::take(held) };
        scanner.redact_within(held, usize::MAX);
        let rest = held.split_off(scanner.begins(held));
        std::mem::replace(held, rest)
    }

    /// The name of a secret in whose place a note is in a text.
    pub fn noted(&self, text: &str) -> Option<&str> {
        let names = self.known.iter().map(Known::name);
        self.scanner.as_ref()?;
        names.into_iter().find(|name| text.contains(&scanner::note(name)))
    }
}

/// How a secret is used.
fn used(name: &str) -> String {
    format!("use `secret(\"{name}\")` in the value of a header or a variable of a command")
}
