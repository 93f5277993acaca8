//! `--explain`: what was granted, what was used, what each host call cost.

use harness::artifact::escape;
use harness::dispatch::{Project, ToolOutput};
use harness::policy::layer::{Layer, Scope};
use harness::sandbox::outcome::Report;

use super::super::printer::Printer;

pub(crate) fn tell(project: &Project, tool: &str, report: &Report<ToolOutput>, printer: Printer) {
    let Ok(tool) = project.tool(tool) else { return };
    printer.say("granted, where all of these agree:");
    for layer in project.grant(tool).layers() {
        for line in granted(layer) {
            printer.say(&format!("  {line}"));
        }
    }
    let limits = project.limits(tool);
    printer.say(&format!(
        "limits: fuel {}, {} ms, memory {} MiB, output {} bytes, files {} bytes",
        limits.fuel,
        limits.timeout.as_millis(),
        limits.memory_bytes >> 20,
        limits.output_bytes,
        limits.file_bytes
    ));
    let usage = &report.usage;
    printer.say(&format!(
        "used: fuel {}, {:.3} ms, memory {:.1} MiB at most, {} host calls, {} bytes in, {} bytes out",
        usage.fuel,
        usage.wall.as_secs_f64() * 1e3,
        usage.peak_memory as f64 / f64::from(1 << 20),
        usage.host_calls,
        usage.bytes_in,
        usage.bytes_out
    ));
    for call in &report.calls {
        let (interface, function) = call.import.path();
        let refused = call.refused.as_ref().map(|why| format!(" refused: {}", escape::line(why))).unwrap_or_default();
        printer.say(&format!(
            "  {interface}.{function} {}: fuel {}, {:.3} ms, {} bytes in, {} bytes out{refused}",
            escape::line(&call.subject),
            call.fuel,
            call.wall.as_secs_f64() * 1e3,
            call.bytes.0,
            call.bytes.1
        ));
    }
    let untold = usage.host_calls.saturating_sub(report.calls.len() as u64);
    if untold > 0 {
        printer.say(&format!("  ... and {untold} more"));
    }
}

/// What one layer allows, a line each.
fn granted(layer: &Layer) -> Vec<String> {
    let place = match &layer.origin.scope {
        Scope::Project => layer.origin.file.clone(),
        Scope::Source(name) => format!("{}, source `{name}`", layer.origin.file),
        Scope::Artifact => format!("{}, its capabilities", layer.origin.file),
        Scope::Default => "the defaults".to_owned(),
    };
    let mut lines = vec![format!("{}:", escape::line(&place))];
    let mut add = |what: &str, values: Vec<String>| {
        let values =
            if values.is_empty() { "nothing".to_owned() } else { escape::line(&values.join(", ")).into_owned() };
        lines.push(format!("  {what}: {values}"));
    };
    if let Some(fs) = &layer.fs {
        add("read", fs.read.iter().map(ToString::to_string).collect());
        add("write", fs.write.iter().map(ToString::to_string).collect());
        if !fs.protect.is_empty() {
            add("protect", fs.protect.iter().map(ToString::to_string).collect());
        }
    }
    if let Some(network) = &layer.network {
        add("hosts", network.allow.iter().map(ToString::to_string).collect());
    }
    if let Some(exec) = &layer.exec {
        add("commands", exec.allow.iter().map(ToString::to_string).collect());
        add("their variables", exec.env.clone());
    }
    if let Some(env) = &layer.env {
        add("variables", env.clone());
    }
    if let Some(services) = &layer.services {
        add("services", services.iter().map(|service| service.name().to_owned()).collect());
    }
    lines
}
