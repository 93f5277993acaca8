//! `harness mcp serve`: the project's tools for clients of the Model Context Protocol.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_dispatch::{Options, Project};
use harness_mcp::{Server, Settings, stdio};

use super::args::{Confirm, Mcp, ProjectArgs, Serve};
use super::exit::Exit;
use super::printer::Printer;
use super::signals::Signals;
use super::{project, run};

/// Threads that answer requests.
const MAX_THREADS: usize = 8;
/// Bytes of stack that each of them has, as the main one does: agents may be sixteen deep there too.
const STACK: usize = 8 << 20;

/// Runs a command of `harness mcp`. An error is that nothing was served, which was reported.
pub(crate) fn run(command: &Mcp, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    match command {
        Mcp::Serve(command) => serve(command, place, printer),
    }
}

fn serve(command: &Serve, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let options = Options { workspace: command.workspace.clone(), ..Options::default() };
    let project = project::open(place, options, printer)?;
    let plan = project::plan(&project, place, command.workspace.as_deref());
    project::confine(&plan, &command.confine, printer)?;
    // Its threads are begun when the process has given up what it does not need.
    let runtime = runtime(printer)?;
    let server = server(project, &command.confirm, place, printer);
    let exit = runtime.block_on(async {
        let mut signals = Signals::new();
        let served = signals.unless(stdio::serve(server.clone(), std::io::stdin(), std::io::stdout())).await;
        signals.at_once();
        server.close();
        match served {
            Ok(Ok(())) => Exit::Completed,
            Ok(Err(error)) => {
                printer.error(&format!("cannot write to the client: {error}"), &[], None);
                Exit::Fault
            }
            Err(heard) => heard.exit(),
        }
    });
    Ok(project::audited(server.project(), exit, printer))
}

fn server(project: Project, confirm: &Confirm, place: &ProjectArgs, printer: Printer) -> Server {
    let models = run::models(&project, place);
    let confirmer = Arc::new(InAdvance(confirm.clone()));
    let on_fault = Box::new(move |why: &str| printer.error(&format!("the host failed: {why}"), &[], None));
    Server::new(project, Settings { models, confirmer, on_fault })
}

fn runtime(printer: Printer) -> Result<tokio::runtime::Runtime, Exit> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .map_err(|error| {
            printer.error(&format!("cannot start: {error}"), &[], None);
            Exit::Fault
        })
}

/// Confirms the calls that the command line names. Standard input is the client's, so that nobody can be asked there.
#[derive(Debug)]
struct InAdvance(Confirm);

impl Confirmer for InAdvance {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        let is_named = self.0.yes || self.0.confirm.iter().any(|name| name == question.tool);
        Box::pin(std::future::ready(if is_named { Answer::Yes } else { Answer::Nobody }))
    }
}
