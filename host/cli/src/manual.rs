//! `harness manual`: manual pages, which packages of the program install.

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use super::args::Arguments;
use super::exit::Exit;
use super::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Name of the page, such as `harness-call`. Default: print the names of all pages, one on each line.
    pub(crate) page: Option<String>,
}

/// Prints a page in the form that `man` reads, or the names of all.
pub(crate) fn run(command: &Manual, printer: &Printer) -> Exit {
    let pages = pages();
    let Some(page) = &command.page else {
        printer.data(&pages.iter().map(|page| format!("{}\n", name(page))).collect::<String>());
        return Exit::Completed;
    };
    let Some(found) = pages.into_iter().find(|found| name(found) == page) else {
        printer.error(&format!("no manual page `{page}`"), &[], Some("`harness manual` lists the pages"));
        return Exit::Usage;
    };
    let mut text = Vec::new();
    // No date: the page of one version is the same text whenever it is made.
    let page = Man::new(found).date("").source(format!("Harness {}", env!("CARGO_PKG_VERSION"))).manual("Harness");
    if let Err(error) = page.render(&mut text) {
        printer.error(&format!("cannot make the page: {error}"), &[], None);
        return Exit::Fault;
    }
    printer.data(&String::from_utf8_lossy(&text));
    Exit::Completed
}

/// A page for the program, and one for each of its commands that `--help` lists.
fn pages() -> Vec<Command> {
    let mut all = Arguments::command().disable_help_subcommand(true);
    all.build();
    let mut pages = Vec::new();
    let mut waiting = vec![all];
    while let Some(command) = waiting.pop() {
        let listed: Vec<Command> = command.get_subcommands().filter(|listed| !listed.is_hide_set()).cloned().collect();
        waiting.extend(listed.into_iter().rev());
        pages.push(command);
    }
    pages
}

fn name(page: &Command) -> &str {
    page.get_display_name().unwrap_or_else(|| page.get_name())
}
