//! `observe`: pure built-ins of a tool, as the interpreter reports them to the hooks on `builtin.pre` and `builtin.post`.
//!
//! What an interpreter says of its own computations is its own word. So it can report these functions alone: no hook hears
//! of a file that was not read because a script says so.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use super::reentry::{Allowance, Ended, Reentry};
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;

/// Bytes of JSON that an answer has at most.
const MAX_BYTES: usize = 12 << 20;

/// The pure built-ins.
pub const PURE: &[&str] = &[
    "allow",
    "assert_that",
    "base64.decode",
    "base64.encode",
    "block",
    "content.audio",
    "content.image",
    "content.link",
    "content.resource",
    "content.result",
    "content.text",
    "crypto.hmac_sha256",
    "fs.diff",
    "hash.md5",
    "hash.sha256",
    "json.decode",
    "json.encode",
    "math.abs",
    "math.ceil",
    "math.floor",
    "math.max",
    "math.min",
    "modify",
    "os.arch",
    "os.platform",
    "re.find_all",
    "re.findall",
    "re.match",
    "re.replace",
    "re.search",
    "re.split",
    "set.contains",
    "set.diff",
    "set.intersect",
    "set.new",
    "set.size",
    "set.union",
    "set.values",
    "string.join",
    "string.lower",
    "string.pad_left",
    "string.pad_right",
    "string.split",
    "string.trim",
    "string.truncate",
    "string.upper",
    "template.render",
    "url.encode",
    "url.parse",
    "validate.email",
    "validate.json",
    "validate.url",
];

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// A hook is against it, or it is no call of a pure built-in.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
}

/// A call that has ended, as the interpreter reports it.
#[derive(Deserialize)]
struct Reported {
    arguments: Json,
    result: Json,
    error: Option<String>,
}

/// `builtin.pre` of a pure built-in: the arguments where a hook changed them, and what the hooks used.
pub async fn before(
    reentry: &dyn Reentry,
    function: &str,
    arguments: &str,
    left: Allowance,
) -> (Result<Option<String>, Error>, u64) {
    if !reentry.listening().before {
        return (Ok(None), 0);
    }
    let reported = pure(function).and_then(|function| Ok((function, read::<Json>(arguments)?)));
    let (function, arguments) = match reported {
        Ok(reported) => reported,
        Err(error) => return (Err(error), 0),
    };
    let (changed, used) = reentry.before(function, arguments, left).await;
    (answer(function, changed), used)
}

/// `builtin.post` of a pure built-in: the result where a hook changed it, and what the hooks used.
pub async fn after(
    reentry: &dyn Reentry,
    function: &str,
    ended: &str,
    left: Allowance,
) -> (Result<Option<String>, Error>, u64) {
    if !reentry.listening().after {
        return (Ok(None), 0);
    }
    let reported = pure(function).and_then(|function| Ok((function, read::<Reported>(ended)?)));
    let (function, Reported { arguments, result, error }) = match reported {
        Ok(reported) => reported,
        Err(error) => return (Err(error), 0),
    };
    let result = error.map_or(Ok(result), Err);
    let (changed, used) = reentry.after(Ended { function, arguments, result }, left).await;
    (answer(function, changed), used)
}

/// A refusal that no policy can lift.
pub fn refused(why: String) -> Error {
    Error::AccessDenied(Refusal::always(why).into())
}

fn pure(function: &str) -> Result<&'static str, Error> {
    let found = PURE.iter().find(|pure| **pure == function);
    found.copied().ok_or_else(|| refused(format!("{} is not a pure built-in", quoted(function))))
}

fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| refused(format!("the report of a built-in is invalid: {error}")))
}

fn answer(function: &str, changed: Result<Option<Json>, Denial>) -> Result<Option<String>, Error> {
    let changed = changed.map_err(Error::AccessDenied)?.map(|changed| changed.to_string());
    if changed.as_ref().is_some_and(|changed| changed.len() > MAX_BYTES) {
        return Err(refused(format!("the value that a hook returned for `{function}` is over {MAX_BYTES} bytes")));
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pure_built_ins_are_reported() {
        assert_eq!(pure("json.encode"), Ok("json.encode"));
        for other in ["fs.read", "exec.run", "json", "", "len", "json.encode "] {
            let Err(Error::AccessDenied(denial)) = pure(other) else { panic!("{other}") };
            assert_eq!(denial.reason, format!("`{other}` is not a pure built-in"));
        }
        assert!(PURE.is_sorted());
    }

    #[test]
    fn a_report_has_its_form() {
        assert!(read::<Reported>(r#"{"arguments": {}, "result": 1, "error": null}"#).is_ok());
        for wrong in ["", "[]", "{}", r#"{"arguments": {}}"#, r#"{"arguments": {}, "result": 1, "error": 2}"#] {
            assert!(read::<Reported>(wrong).is_err(), "{wrong}");
        }
    }

    /// The page on hooks lists them all.
    #[test]
    fn the_page_has_each_pure_built_in() {
        let page = include_str!("../../../docs/hooks.md");
        let line = page.lines().filter(|line| line.starts_with("| pure: ")).collect::<Vec<_>>().join(" ");
        let mut listed: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        listed.sort_unstable();
        assert_eq!(listed, PURE);
    }
}
