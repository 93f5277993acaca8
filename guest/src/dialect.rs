//! Which Starlark this is: no `load`, no recursion, no `for` or `if` at the top level, no types, no f-strings.
//!
//! The interpreter itself knows all of these but recursion, which it allows. Here it is refused before the script
//! runs, wherever functions that name each other form a circle. What is passed around as a value cannot be seen in
//! the text; a limit on the depth of calls ends that when it happens.

use std::collections::{BTreeMap, BTreeSet};

use starlark::codemap::Span;
use starlark::syntax::{AstModule, Dialect, DialectTypes};
use starlark_syntax::syntax::ast::{AstExpr, AstParameter, AstStmt, Expr, Stmt};
use starlark_syntax::syntax::uniplate::Visit;

/// Calls within calls. Without recursion a script gets no deeper than it has functions.
pub(crate) const MAX_CALL_DEPTH: usize = 100;

/// The interpreter's own switches.
pub(crate) const DIALECT: Dialect = Dialect {
    enable_def: true,
    enable_lambda: true,
    enable_load: false,
    enable_keyword_only_arguments: true,
    enable_positional_only_arguments: false,
    enable_types: DialectTypes::Disable,
    enable_load_reexport: false,
    enable_top_level_stmt: false,
    enable_f_strings: false,
    _non_exhaustive: (),
};

/// Something that the interpreter would take and this dialect does not.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) message: String,
    pub(crate) span: Span,
}

/// Finds recursion between named functions.
pub(crate) fn check(ast: &AstModule) -> Result<(), Rejected> {
    let mut functions = Functions::default();
    functions.statement(ast.statement(), None);
    functions.check()
}

/// The functions of a script and which of them each one names.
#[derive(Debug, Default)]
struct Functions {
    /// By name. Functions of one name in different scopes count as one.
    names: BTreeMap<String, Function>,
}

#[derive(Debug, Default)]
struct Function {
    /// Names that its body reads, with the first place of each.
    reads: BTreeMap<String, Span>,
    /// Names that it binds: parameters, variables. These are not the functions of the same name.
    binds: BTreeSet<String>,
}

impl Functions {
    fn statement(&mut self, statement: &AstStmt, inside: Option<&str>) {
        match &statement.node {
            Stmt::Def(def) => {
                let name = def.name.ident.clone();
                self.parameters(&def.params, &name, inside);
                self.statement(&def.body, Some(&name));
                if let Some(outer) = inside {
                    // A function that is defined in another is part of it: what it reads, the outer one reads too.
                    let reads = self.names.get(&name).map(|f| f.reads.clone()).unwrap_or_default();
                    let outer = self.names.entry(outer.to_owned()).or_default();
                    for (read, span) in reads {
                        if read != name {
                            outer.reads.entry(read).or_insert(span);
                        }
                    }
                }
            }
            Stmt::Assign(assign) => {
                if let Some(name) = inside {
                    let binds = &mut self.names.entry(name.to_owned()).or_default().binds;
                    assign.lhs.visit_lvalue(|target| {
                        binds.insert(target.node.ident.clone());
                    });
                }
                self.children(statement, inside);
            }
            Stmt::For(each) => {
                if let Some(name) = inside {
                    let binds = &mut self.names.entry(name.to_owned()).or_default().binds;
                    each.var.visit_lvalue(|target| {
                        binds.insert(target.node.ident.clone());
                    });
                }
                self.children(statement, inside);
            }
            _ => self.children(statement, inside),
        }
    }

    fn children(&mut self, statement: &AstStmt, inside: Option<&str>) {
        statement.node.visit_children(|child| match child {
            Visit::Stmt(statement) => self.statement(statement, inside),
            Visit::Expr(expression) => self.expression(expression, inside),
        });
    }

    fn parameters(&mut self, parameters: &[AstParameter], name: &str, outside: Option<&str>) {
        let function = self.names.entry(name.to_owned()).or_default();
        for parameter in parameters {
            if let Some(ident) = parameter.node.ident() {
                function.binds.insert(ident.node.ident.clone());
            }
        }
        for parameter in parameters {
            // Default values belong to the scope around the function.
            parameter.node.split().2.into_iter().for_each(|default| self.expression(default, outside));
        }
    }

    fn expression(&mut self, expression: &AstExpr, inside: Option<&str>) {
        if let (Expr::Identifier(ident), Some(name)) = (&expression.node, inside) {
            let reads = &mut self.names.entry(name.to_owned()).or_default().reads;
            reads.entry(ident.node.ident.clone()).or_insert(expression.span);
        }
        expression.node.visit_expr(|child| self.expression(child, inside));
    }

    /// The functions that one names, without what it binds itself.
    fn named_by<'a>(&'a self, function: &'a Function) -> impl Iterator<Item = (&'a str, Span)> {
        function
            .reads
            .iter()
            .filter(|(name, _)| !function.binds.contains(*name) && self.names.contains_key(*name))
            .map(|(name, span)| (name.as_str(), *span))
    }

    fn check(&self) -> Result<(), Rejected> {
        for (name, function) in &self.names {
            for (next, span) in self.named_by(function) {
                if let Some(path) = self.path(next, name) {
                    let circle: Vec<String> =
                        std::iter::once(name.as_str()).chain(path).map(|name| format!("`{name}`")).collect();
                    let message = format!(
                        "function `{name}` is recursive ({}): this Starlark has no recursion, write a loop",
                        circle.join(" calls ")
                    );
                    return Err(Rejected { message, span });
                }
            }
        }
        Ok(())
    }

    /// Functions from one to another, both included, if there is a way.
    fn path<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![vec![from]];
        while let Some(path) = waiting.pop() {
            let last = *path.last()?;
            if last == to {
                return Some(path);
            }
            if !seen.insert(last) {
                continue;
            }
            if let Some(function) = self.names.get(last) {
                for (next, _) in self.named_by(function) {
                    let mut longer = path.clone();
                    longer.push(next);
                    waiting.push(longer);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod float_tests;
#[cfg(test)]
mod number_tests;
#[cfg(test)]
mod standard_tests;
