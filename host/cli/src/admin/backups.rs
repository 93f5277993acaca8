//! `harness admin backup` and `harness admin restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use harness_serve::backup::{self, Refused, Report};
use harness_serve::seal::{MAX_KEY, Sealer};
use harness_sys as sys;
use hyper::Method;
use serde_json::json;

use super::{At, as_json, exchange, failed, usage};
use crate::exit::Exit;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) at: At,
    /// Name of the backup: letters, digits, `-` and `_`.
    pub(crate) name: String,
    /// Verify the backup when it is written, with the key in `DATA/sealing.key`.
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness admin restore backups/monday --data ./data --sealing-key sealing.key\n  \
                        harness admin restore backups/monday --verify\n\n\
                        Exit codes: 0 restored, or whole, 1 the backup is not whole, 2 the arguments cannot be used.")]
pub(crate) struct Restore {
    /// Folder of the backup.
    pub(crate) backup: PathBuf,
    /// Data folder to restore to. It must be empty; it is created if it does not exist. No server may use it.
    #[arg(long, value_name = "DIR", required_unless_present = "verify", conflicts_with = "verify")]
    pub(crate) data: Option<PathBuf>,
    /// Only verify the backup, and write nothing.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Sealing key of the server that the backup is of: its `DATA/sealing.key`. Needed if the backup has secrets.
    #[arg(long, value_name = "FILE")]
    pub(crate) sealing_key: Option<PathBuf>,
}

pub(super) fn write(command: &Backup, printer: Printer) -> Result<Exit, Exit> {
    let Backup { at, name, verify } = command;
    let body = json!({"name": name}).to_string().into_bytes();
    let (status, text) = exchange(at, Method::POST, "/admin/v1/backup", body, printer)?;
    let answer = as_json(text);
    if status >= 400 {
        return failed(status, &answer, printer);
    }
    printer.json(&answer);
    if !verify {
        return Ok(Exit::Completed);
    }
    let key = sealing_key(&at.data.join("sealing.key"), printer)?;
    let sealer = Sealer::new(&key).map_err(|why| usage(why, printer))?;
    let folder = at.data.join("backups").join(name);
    reported(&folder, &backup::verify(&folder, Some(&sealer)), printer)
}

pub(super) fn restore(command: &Restore, printer: Printer) -> Result<Exit, Exit> {
    let Restore { backup: folder, data, sealing_key: file, .. } = command;
    if !sys::is_folder(folder) {
        return Err(usage(&format!("`{}` is no folder of a backup", folder.display()), printer));
    }
    let key = file.as_deref().map(|file| sealing_key(file, printer)).transpose()?;
    let Some(data) = data else {
        let sealer = key.as_deref().map(Sealer::new).transpose().map_err(|why| usage(why, printer))?;
        return reported(folder, &backup::verify(folder, sealer.as_ref()), printer);
    };
    let refused = |why: &str, hint: &str, exit| {
        printer.error(why, &[], (!hint.is_empty()).then_some(hint));
        Err(exit)
    };
    match backup::restore(folder, data, key.as_deref()) {
        Ok(report) => reported(folder, &report, printer),
        Err(Refused::Broken(report)) => reported(folder, &report, printer),
        Err(Refused::NotEmpty) => {
            let why = format!("`{}` is not empty: nothing was restored", data.display());
            refused(&why, "name a new folder; a restore replaces nothing", Exit::Usage)
        }
        Err(Refused::NoKey(secrets)) => {
            let why = format!("the backup has {secrets} sealed secrets, and there is no key that opens them");
            let hint = "add `--sealing-key FILE` with the `sealing.key` of the server that the backup is of";
            refused(&why, hint, Exit::Usage)
        }
        Err(Refused::Key(why)) => refused(why, "", Exit::Usage),
        Err(Refused::Failed(why)) => {
            let why = format!("the backup cannot be restored: {why}");
            refused(&why, "empty the folder before you restore to it again", Exit::Fault)
        }
    }
}

fn sealing_key(file: &Path, printer: Printer) -> Result<String, Exit> {
    let key = sys::read_secret(file, MAX_KEY);
    key.map_err(|error| usage(&format!("cannot read the sealing key `{}`: {error}", file.display()), printer))
}

/// Prints what was checked, and what is wrong.
fn reported(folder: &Path, report: &Report, printer: Printer) -> Result<Exit, Exit> {
    let mut shown = json!({"backup": folder.display().to_string(), "whole": report.is_whole()});
    if let (Some(shown), Ok(serde_json::Value::Object(report))) = (shown.as_object_mut(), serde_json::to_value(report))
    {
        shown.extend(report);
    }
    printer.json(&shown);
    if report.is_whole() {
        return Ok(Exit::Completed);
    }
    let causes: Vec<String> = report.faults.iter().map(|fault| format!("{}: {}", fault.part, fault.why)).collect();
    let hint = "restore another backup; this one is left as it is";
    printer.error(&format!("the backup `{}` is not whole", folder.display()), &causes, Some(hint));
    Err(Exit::Failed)
}
