//! The handles of one request or command, decided, and then exchanged for what they stand for.

use reqwest::header::{HeaderMap, HeaderValue};

use super::{Handles, forms};
use harness_policy::network::Target;
use harness_policy::refusal::Refusal;

/// The beginning of a header that the host encodes: `Basic USER:HANDLE`.
const BASIC: &str = "Basic ";

/// What a request borrows.
#[derive(Debug)]
pub struct RequestLoan<'h> {
    handles: &'h Handles,
    names: Vec<&'h str>,
}

/// What a command borrows: the secrets in its variables.
#[derive(Debug)]
pub struct CommandLoan<'h> {
    handles: &'h Handles,
    variables: &'h mut [(String, String)],
}

impl Handles {
    /// The handles in the headers of a request. One in any other place is refused, and so is one of another call.
    pub fn lend_to_request(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: Option<&str>,
    ) -> Result<RequestLoan<'_>, Refusal> {
        self.none_in("a URL", url)?;
        self.none_in("the body of a request", body.unwrap_or_default())?;
        let mut names = Vec::new();
        for (name, value) in headers {
            self.none_in("the name of a header", name)?;
            self.named_in(value, &mut names)?;
        }
        Ok(RequestLoan { handles: self, names })
    }

    /// The handles in the variables of a command, each for a command that its secret is for. One in any other place is
    /// refused, and so is one of another call.
    pub fn lend_to_command<'h>(
        &'h self,
        program: &str,
        args: &[String],
        dir: &str,
        stdin: Option<&str>,
        variables: &'h mut [(String, String)],
    ) -> Result<CommandLoan<'h>, Refusal> {
        for (place, text) in [("the name of a program", program), ("the folder of a command", dir)] {
            self.none_in(place, text)?;
        }
        args.iter().try_for_each(|arg| self.none_in("an argument of a command", arg))?;
        self.none_in("the standard input of a command", stdin.unwrap_or_default())?;
        let mut names = Vec::new();
        for (name, value) in variables.iter() {
            self.none_in("the name of a variable", name)?;
            self.named_in(value, &mut names)?;
        }
        for name in names {
            if let Some(secret) = self.vault.secret(name) {
                secret.decide_command(program, args)?;
            }
        }
        Ok(CommandLoan { handles: self, variables })
    }

    /// The secrets that the handles in a text stand for.
    fn named_in<'h>(&'h self, text: &str, names: &mut Vec<&'h str>) -> Result<(), Refusal> {
        let mut rest = text;
        while let Some((_, handle, after)) = Self::first(rest) {
            names.push(self.meant(handle)?);
            rest = after;
        }
        Ok(())
    }

    /// A text with the values instead of its handles; none where it has no handle.
    fn filled(&self, text: &str) -> Result<Option<String>, Refusal> {
        let (mut filled, mut rest) = (None, text);
        while let Some((before, handle, after)) = Self::first(rest) {
            let filled = filled.get_or_insert_with(String::new);
            filled.push_str(before);
            filled.push_str(self.vault.value(self.meant(handle)?)?);
            rest = after;
        }
        Ok(filled.map(|filled| filled + rest))
    }
}

impl RequestLoan<'_> {
    /// Whether all that is borrowed may be sent to where the request goes.
    pub fn decide(&self, target: &Target) -> Result<(), Refusal> {
        let secrets = self.names.iter().filter_map(|name| self.handles.vault.secret(name));
        secrets.into_iter().try_for_each(|secret| secret.decide_target(target))
    }

    /// Puts the values into the headers and marks those. What `Basic` credentials are made of is encoded here, as no
    /// script can do it.
    pub fn fill(&self, headers: &mut HeaderMap) -> Result<(), Refusal> {
        for (name, value) in headers.iter_mut() {
            let Some(text) = std::str::from_utf8(value.as_bytes()).ok() else { continue };
            let Some(filled) = self.handles.filled(text)? else { continue };
            let filled = match filled.strip_prefix(BASIC).filter(|_| name == "authorization") {
                Some(credentials) => format!("{BASIC}{}", forms::base64(credentials.as_bytes())),
                None => filled,
            };
            *value = HeaderValue::from_bytes(filled.as_bytes())
                .map_err(|_| Refusal::always(format!("a secret in the header `{name}` holds a control character")))?;
            value.set_sensitive(true);
        }
        Ok(())
    }
}

impl CommandLoan<'_> {
    /// Puts the values into the variables.
    pub fn fill(self) -> Result<(), Refusal> {
        for (_, value) in self.variables {
            if let Some(filled) = self.handles.filled(value)? {
                *value = filled;
            }
        }
        Ok(())
    }
}
