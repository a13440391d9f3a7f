//! Workflow commands, which GitHub shows beside the code.
//!
//! <https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>

use std::fmt::Write as _;

use crate::judge::FileReport;

pub(super) fn fragment(report: &FileReport, text: &mut String) {
    for diagnostic in &report.diagnostics {
        let mut message = diagnostic.summary.clone();
        for reason in &diagnostic.because {
            message.push_str("\nbecause: ");
            message.push_str(reason);
        }
        if let Some(help) = &diagnostic.help {
            message.push_str("\nhelp: ");
            message.push_str(help);
        }
        text.push_str("::");
        text.push_str(diagnostic.severity.as_str());
        text.push_str(" file=");
        property(&diagnostic.file, text);
        if let Some(label) = &diagnostic.at {
            let _ = write!(text, ",line={},col={}", label.line, label.column);
            if label.end_line == label.line && label.end_column > label.column {
                let _ = write!(text, ",endColumn={}", label.end_column);
            }
        }
        text.push_str(",title=");
        property(diagnostic.code.as_str(), text);
        text.push_str("::");
        data(&message, text);
        text.push('\n');
    }
}

fn data(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '%' => text.push_str("%25"),
            '\r' => text.push_str("%0D"),
            '\n' => text.push_str("%0A"),
            c => text.push(c),
        }
    }
}

fn property(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '%' => text.push_str("%25"),
            '\r' => text.push_str("%0D"),
            '\n' => text.push_str("%0A"),
            ':' => text.push_str("%3A"),
            ',' => text.push_str("%2C"),
            c => text.push(c),
        }
    }
}
