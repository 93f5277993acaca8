//! Which lines of a script were reached, for `harness test`.
//!
//! The text is changed before it is compiled: in front of each statement comes a call that notes the statement's line.
//! The interpreter's own hook for statements would not do: it sees what is left after optimization, so a function that
//! was inlined, a condition that is a constant and a `pass` are never reached. A call is never optimized away, and a
//! function with a call in front of its `return` is not inlined.
//!
//! Errors still tell where the script as it was written stands: [`Marks::written`].

use std::cell::RefCell;
use std::collections::BTreeSet;

use starlark::codemap::{FileSpan, Pos, Span};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::syntax::AstModule;
use starlark_syntax::codemap::CodeMap;
use starlark_syntax::syntax::ast::{AstExpr, AstLiteral, AstStmt, Expr, Stmt};

use crate::bindings::harness::sandbox::coverage;
use crate::diagnostic::Place;
use crate::dialect::DIALECT;

/// The function that notes a line. A script that uses this name itself is not measured.
const MARK: &str = "__reached__";

/// The most lines that the host takes.
const MAX_LINES: usize = 65_536;

/// Lines of the artifact's file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Lines {
    /// At which a statement begins.
    pub(crate) statements: BTreeSet<u32>,
    /// Those that ran.
    pub(crate) reached: BTreeSet<u32>,
}

thread_local! {
    /// What is known of the loaded script; of most scripts nothing is asked.
    static LINES: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// From now on no script is measured.
pub(crate) fn stop() {
    LINES.take();
}

/// Whether the script that is loaded is measured.
pub(crate) fn is_on() -> bool {
    LINES.with_borrow(Option::is_some)
}

/// Tells the host what was reached, if the script is measured: at the end of a call.
pub(crate) fn tell() {
    let Some(lines) = LINES.with_borrow(Option::clone) else { return };
    let statements: Vec<u32> = lines.statements.iter().copied().take(MAX_LINES).collect();
    let reached: Vec<u32> = lines.reached.iter().copied().take(MAX_LINES).collect();
    coverage::record(&statements, &reached);
}

/// The script with its marks, and where these are. From now on it is measured. None where marks cannot be set; such a
/// script runs as it is, and nothing is told of its lines.
pub(crate) fn start(script: &AstModule, place: &Place) -> Option<(AstModule, Marks)> {
    let script = Script { file: script.file_span(Span::default()).file, statement: script.statement() };
    if script.file.source().contains(MARK) {
        return None;
    }
    let found = script.find(place);
    let text = insert(script.file.source(), &found.inserted)?;
    let marked = AstModule::parse(&place.file, text, &DIALECT).ok()?;
    let marks = Marks {
        written: script.file,
        marked: marked.file_span(Span::default()).file,
        inserted: found.inserted.into_iter().map(|(at, text)| (at, text.len())).collect(),
        conditions: found.conditions,
    };
    LINES.set(Some(Lines { statements: found.lines, reached: BTreeSet::new() }));
    Some((marked, marks))
}

/// What was put into a script, and where.
#[derive(Debug)]
pub(crate) struct Marks {
    written: CodeMap,
    marked: CodeMap,
    /// Where in the script as it was written, and how many bytes: in order.
    inserted: Vec<(usize, usize)>,
    /// Conditions whose errors are told at the `elif` before them, and where that is.
    conditions: Vec<(Span, Pos)>,
}

impl Marks {
    /// The beginning of a span of the marked script, in the script as it was written.
    pub(crate) fn written(&self, span: &FileSpan) -> FileSpan {
        if span.file != self.marked {
            return span.clone();
        }
        let found = Span::new(self.position(span.span.begin()), self.position(span.span.end()));
        let elif = self.conditions.iter().find(|(condition, _)| *condition == found);
        let begin = elif.map_or(found.begin(), |(_, begin)| *begin);
        self.written.file_span(Span::new(begin, begin))
    }

    fn position(&self, marked: Pos) -> Pos {
        let marked = offset(marked);
        let mut shift = 0;
        for (at, length) in &self.inserted {
            let start = at + shift;
            if marked < start {
                break;
            }
            // Within what was inserted: the place where it was.
            shift += (*length).min(marked - start);
        }
        Pos::new(u32::try_from(marked - shift).unwrap_or(u32::MAX))
    }
}

/// A script as it was written.
struct Script<'a> {
    file: CodeMap,
    statement: &'a AstStmt,
}

/// What there is to know of a script to mark it.
#[derive(Default)]
struct Found {
    /// Lines at which statements begin.
    lines: BTreeSet<u32>,
    /// What to insert and where, in order.
    inserted: Vec<(usize, String)>,
    /// As in [`Marks`].
    conditions: Vec<(Span, Pos)>,
}

impl Script<'_> {
    fn find(&self, place: &Place) -> Found {
        let mut found = Found::default();
        self.statement(self.statement, &mut |statement| {
            let (line, _) = place.position(&self.file.file_span(statement.span));
            if let Some(mark) = self.mark(statement, line) {
                found.lines.insert(line);
                found.inserted.push(mark);
            }
            if let Stmt::If(condition, _) | Stmt::IfElse(condition, _) = &statement.node
                && self.is_elif(statement)
                && let Some(span) = told_at_elif(condition)
            {
                found.conditions.push((span, statement.span.begin()));
            }
        });
        found.inserted.sort();
        found
    }

    /// Whether a conditional statement is not the first of its kind: no statement can stand before it.
    fn is_elif(&self, statement: &AstStmt) -> bool {
        self.file.source().get(offset(statement.span.begin())..).is_some_and(|text| text.starts_with("elif"))
    }

    fn statement(&self, statement: &AstStmt, each: &mut impl FnMut(&AstStmt)) {
        if !matches!(statement.node, Stmt::Statements(_)) {
            each(statement);
        }
        statement.node.visit_stmt(|inner| self.statement(inner, each));
    }

    /// What to insert for a statement, and where. None for what does nothing (a text that documents a function).
    fn mark(&self, statement: &AstStmt, line: u32) -> Option<(usize, String)> {
        let begin = offset(statement.span.begin());
        let before = self.file.source().get(..begin)?;
        match &statement.node {
            Stmt::Expression(expression) if is_text(expression) => None,
            // Its condition begins with the mark, which is true.
            Stmt::If(condition, _) | Stmt::IfElse(condition, _) if self.is_elif(statement) => match first(condition) {
                None => Some((begin + "elif".len(), format!(" {MARK}({line}) and"))),
                Some(first) => Some((offset(first.span.begin()), format!("{MARK}({line}) and "))),
            },
            // These have lines of their own, and so has the mark.
            Stmt::If(..) | Stmt::IfElse(..) | Stmt::For(_) | Stmt::Def(_) => {
                let (_, indentation) = before.rsplit_once('\n').unwrap_or(("", before));
                Some((begin, format!("{MARK}({line})\n{indentation}")))
            }
            _ => Some((begin, format!("{MARK}({line});"))),
        }
    }
}

/// What a condition evaluates first, where that is not what it begins with: of `a if b else c` it is `b`.
fn first(condition: &AstExpr) -> Option<&AstExpr> {
    match &condition.node {
        Expr::If(parts) => first(&parts.0).or(Some(&parts.0)),
        _ => None,
    }
}

/// The interpreter gives the outermost operation of a condition the position of the whole statement, which is lost when
/// the mark stands before it. A call has a position of its own.
fn told_at_elif(condition: &AstExpr) -> Option<Span> {
    match &condition.node {
        Expr::Not(inner) => told_at_elif(inner),
        Expr::Op(..) | Expr::Index(_) | Expr::Index2(_) | Expr::Slice(..) | Expr::Dot(..) => Some(condition.span),
        Expr::Identifier(_) | Expr::Minus(_) | Expr::Plus(_) | Expr::BitNot(_) => Some(condition.span),
        _ => None,
    }
}

fn is_text(expression: &AstExpr) -> bool {
    matches!(&expression.node, Expr::Literal(AstLiteral::String(_)))
}

fn offset(position: Pos) -> usize {
    usize::try_from(position.get()).unwrap_or(usize::MAX)
}

fn insert(source: &str, inserted: &[(usize, String)]) -> Option<String> {
    let mut text = String::with_capacity(source.len() + inserted.iter().map(|(_, mark)| mark.len()).sum::<usize>());
    let mut done = 0;
    for (at, mark) in inserted {
        text.push_str(source.get(done..*at)?);
        text.push_str(mark);
        done = *at;
    }
    text.push_str(source.get(done..)?);
    Some(text)
}

/// The function that marks call.
#[starlark_module]
pub(crate) fn register(builder: &mut GlobalsBuilder) {
    /// Always true.
    fn __reached__(line: u32) -> anyhow::Result<bool> {
        LINES.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                lines.reached.insert(line);
            }
        });
        Ok(true)
    }
}

/// What is known so far.
#[cfg(test)]
pub(crate) fn lines() -> Option<Lines> {
    LINES.with_borrow(Option::clone)
}

#[cfg(test)]
mod tests;
