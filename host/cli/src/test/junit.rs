//! Results as JUnit XML, for servers that read it.

use std::path::Path;

use harness_sys::output;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::super::args::Color;
use super::super::printer::Printer;
use super::Results;
use super::{difference, failure};

/// Where results are printed instead of the text for a person.
pub(super) fn is_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes the results to a file, or standard output.
pub(super) fn write(path: &Path, results: &Results, root: &Path, printer: Printer) -> Result<(), String> {
    let text = text(results)?;
    if is_output(path) {
        printer.data(&text);
        return Ok(());
    }
    output::write_report(path, &text, output::Readers::All, &[root]).map_err(|error| error.to_string())
}

/// One suite for each artifact.
fn text(results: &Results) -> Result<String, String> {
    let plain = Printer::new(Color::Never);
    let mut suites: Vec<TestSuite> = Vec::new();
    for ran in &results.cases {
        let name = format!("{} {}", ran.subject.kind(), ran.subject.name());
        let status = match &ran.report {
            Ok(report) if report.differences.is_empty() => TestCaseStatus::success(),
            Ok(report) => {
                let mut text: String = report.differences.iter().map(|one| difference::shown(one, plain)).collect();
                text.extend(failure(report).map(|why| format!("it failed: {why}")));
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(format!("at {}", ran.position)).set_description(text);
                status
            }
            Err(why) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(why.as_str());
                status
            }
        };
        let mut case = TestCase::new(ran.name.as_str(), status);
        case.set_classname(name.as_str());
        if let Ok(report) = &ran.report {
            case.set_time(report.took);
        }
        match suites.iter_mut().find(|suite| suite.name.as_str() == name) {
            Some(suite) => {
                suite.add_test_case(case);
            }
            None => {
                let mut suite = TestSuite::new(name.as_str());
                suite.add_test_case(case);
                suites.push(suite);
            }
        }
    }
    // A suite is counted when it is added, so it has to be whole by then.
    let mut report = Report::new("harness test");
    report.add_test_suites(suites);
    report.to_string().map_err(|error| error.to_string())
}
