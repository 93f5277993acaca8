//! `harness sessions show`.

use harness::ambient;
use harness::session::timeline::Timeline;
use harness::session::{html, text};

use super::super::args::Place;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::{Show, find};

pub(super) fn run(command: &Show, place: &Place, printer: Printer) -> Exit {
    let recording = match find(&command.session, place, printer) {
        Ok((_, recording)) => recording,
        Err(exit) => return exit,
    };
    let timeline = Timeline::of(&recording);
    match &command.html {
        _ if command.json => printer.json(&timeline.to_json()),
        None => printer.shown(&text::render(&timeline, printer.colors_data())),
        Some(None) => printer.data(&html::render(&timeline)),
        Some(Some(file)) => {
            if let Err(error) = ambient::write_private(file, &html::render(&timeline)) {
                printer.error(&format!("cannot write `{}`: {error}", file.display()), &[], None);
                return Exit::Usage;
            }
        }
    }
    Exit::Completed
}
