//! `fs.*`: files of the workspace. What reads and writes is an import; what edits text is in [`text`], pure.

mod text;

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::{Heap, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{ImportError, import};
use crate::bindings::harness::sandbox::fs;
use crate::observe::pure;
use crate::phase::{self, Needs};
use crate::record::Record;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("fs", |builder| {
        files(builder);
        pure(builder, "fs", of_texts);
        edits(builder);
    });
}

#[starlark_module]
fn files(builder: &mut GlobalsBuilder) {
    fn read(path: &str) -> anyhow::Result<String> {
        read_text("fs.read", path)
    }

    /// Of any bytes.
    fn read_base64(path: &str) -> anyhow::Result<String> {
        phase::check("fs.read_base64", Needs::Any)?;
        import("fs.read_base64", fs::read_base64(path))
    }

    fn write(path: &str, content: &str) -> anyhow::Result<String> {
        Ok(format!("written: {}", write_text("fs.write", path, content)?))
    }

    fn append(path: &str, content: &str) -> anyhow::Result<String> {
        phase::check("fs.append", Needs::Tool)?;
        Ok(format!("appended to: {}", import("fs.append", fs::append(path, content))?))
    }

    fn exists(path: &str) -> anyhow::Result<bool> {
        phase::check("fs.exists", Needs::Any)?;
        import("fs.exists", fs::exists(path))
    }

    /// A record `name, size, is_dir, mode, mod_time`.
    fn stat<'v>(path: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("fs.stat", Needs::Any)?;
        let facts = import("fs.stat", fs::stat(path))?;
        let modified = OffsetDateTime::from_unix_timestamp(facts.modified)?.format(&Rfc3339)?;
        let fields = [
            ("name", facts.name.into()),
            ("size", facts.size.into()),
            ("is_dir", facts.is_dir.into()),
            ("mode", facts.mode.into()),
            ("mod_time", modified.into()),
        ];
        Ok(heap.alloc(Record(fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())))
    }

    fn list(path: &str) -> anyhow::Result<Vec<String>> {
        phase::check("fs.list", Needs::Any)?;
        import("fs.list", fs::list(path))
    }

    fn glob(pattern: &str) -> anyhow::Result<Vec<String>> {
        phase::check("fs.glob", Needs::Any)?;
        anyhow::ensure!(!pattern.is_empty(), "fs.glob: pattern cannot be empty");
        import("fs.glob", fs::glob(pattern))
    }

    fn remove(path: &str) -> anyhow::Result<String> {
        phase::check("fs.remove", Needs::Tool)?;
        Ok(format!("removed: {}", import("fs.remove", fs::remove(path))?))
    }

    fn mkdir(path: &str) -> anyhow::Result<String> {
        phase::check("fs.mkdir", Needs::Tool)?;
        Ok(format!("created: {}", import("fs.mkdir", fs::mkdir(path))?))
    }

    fn copy(src: &str, dst: &str) -> anyhow::Result<String> {
        phase::check("fs.copy", Needs::Tool)?;
        Ok(format!("copied: {}", import("fs.copy", fs::copy(src, dst))?))
    }

    fn r#move(src: &str, dst: &str) -> anyhow::Result<String> {
        phase::check("fs.move", Needs::Tool)?;
        Ok(format!("moved: {}", import("fs.move", fs::move_(src, dst))?))
    }
}

#[starlark_module]
fn of_texts(builder: &mut GlobalsBuilder) {
    /// A unified diff of two texts, three lines of context.
    fn diff(
        old_content: &str,
        new_content: &str,
        #[starlark(default = "old")] old_name: &str,
        #[starlark(default = "new")] new_name: &str,
    ) -> anyhow::Result<String> {
        Ok(text::unified_diff(old_content, new_content, old_name, new_name))
    }
}

#[starlark_module]
fn edits(builder: &mut GlobalsBuilder) {
    fn replace(path: &str, old: &str, new: &str) -> anyhow::Result<String> {
        edit("fs.replace", path, |content| {
            Ok((text::replace_one(content, old, new, path)?, format!("replaced in: {}", text::base_name(path))))
        })
    }

    fn replace_all(path: &str, old: &str, new: &str) -> anyhow::Result<String> {
        edit("fs.replace_all", path, |content| {
            let (content, count) = text::replace_all(content, old, new, path)?;
            Ok((content, format!("replaced {count} occurrences in: {path}")))
        })
    }

    /// Lines as `N. text`, from `start` to `end`, both included; all that follow where `end` is not above 0.
    fn read_lines(path: &str, start: i64, #[starlark(default = 0)] end: i64) -> anyhow::Result<String> {
        Ok(text::numbered_lines(&read_text("fs.read_lines", path)?, start, end))
    }

    fn line_count(path: &str) -> anyhow::Result<i64> {
        Ok(i64::try_from(read_text("fs.line_count", path)?.matches('\n').count())? + 1)
    }

    /// Inserts before a line; past the end, appends.
    fn insert_at(path: &str, line: i64, content: &str) -> anyhow::Result<String> {
        edit("fs.insert_at", path, |old| {
            let (new, count) = text::insert_at(old, line, content)?;
            Ok((new, format!("inserted {count} lines at line {line}")))
        })
    }

    fn replace_lines(path: &str, start: i64, end: i64, content: &str) -> anyhow::Result<String> {
        edit("fs.replace_lines", path, |old| {
            Ok((text::replace_lines(old, start, end, content)?, format!("replaced lines {start} to {end}")))
        })
    }

    fn delete_lines(path: &str, start: i64, end: i64) -> anyhow::Result<String> {
        edit("fs.delete_lines", path, |old| {
            Ok((text::replace_lines(old, start, end, "")?, format!("deleted lines {start} to {end}")))
        })
    }

    /// Lines that hold a text, as records `line_num, text`.
    fn find<'v>(path: &str, pattern: &str, heap: Heap<'v>) -> anyhow::Result<Vec<Value<'v>>> {
        let content = read_text("fs.find", path)?;
        let found = content.lines().zip(1_i64..).filter(|(line, _)| line.contains(pattern));
        Ok(found
            .map(|(line, number)| {
                let fields = [("line_num".to_owned(), number.into()), ("text".to_owned(), line.into())];
                heap.alloc(Record(fields.into_iter().collect()))
            })
            .collect())
    }
}

fn read_text(builtin: &str, path: &str) -> anyhow::Result<String> {
    phase::check(builtin, Needs::Any)?;
    import(builtin, fs::read(path))
}

fn write_text(builtin: &str, path: &str, content: &str) -> anyhow::Result<String> {
    phase::check(builtin, Needs::Tool)?;
    import(builtin, fs::write(path, content))
}

/// Reads a file, changes its text and writes it back.
fn edit(
    builtin: &str,
    path: &str,
    change: impl FnOnce(&str) -> anyhow::Result<(String, String)>,
) -> anyhow::Result<String> {
    phase::check(builtin, Needs::Tool)?;
    let (content, summary) = change(&read_text(builtin, path)?).map_err(|e| anyhow::anyhow!("{builtin}: {e}"))?;
    write_text(builtin, path, &content)?;
    Ok(summary)
}

impl ImportError for fs::Error {
    fn tell(self) -> (String, bool) {
        let text = match self {
            Self::AccessDenied(denial) => return (denial.reason, true),
            Self::NotFound(path) => format!("`{path}` does not exist"),
            Self::AlreadyExists(path) => format!("`{path}` is there already"),
            Self::NotAFile(kind) => format!("this is a {kind}, not a file"),
            Self::NotADirectory(path) => format!("`{path}` is not a directory"),
            Self::NotEmpty(path) => format!("`{path}` is not empty"),
            Self::TooLarge(cap) => format!("over the limit of {cap}"),
            Self::NotText(path) => format!("`{path}` is not UTF-8 text"),
            Self::Invalid(why) | Self::Io(why) => why,
        };
        (text, false)
    }
}
