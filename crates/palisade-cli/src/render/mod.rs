//! How findings are printed: one file for each format.
//!
//! A file's part of the output is made by the worker that checked it ([`Renderer::fragment`], no state, any order);
//! the parts are put together in the order of the files ([`Assembly`], and [`Sinks`] for several outputs at once).

mod github;
mod gitlab;
mod html;
pub mod human;
mod json;
mod junit;
mod proposal;
mod sarif;
mod summary;

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    str::FromStr,
};

use crate::{
    args::ValueError,
    diagnostic::Diagnostic,
    judge::{FileReport, kubectl_kind},
};

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With excerpts of the source.
    Human,
    /// The stable keys of the command line contract.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for CI servers.
    Junit,
    /// Workflow commands, which GitHub shows beside the code.
    Github,
    /// GitLab's code quality report.
    Gitlab,
    /// One page for a browser.
    Html,
    /// A line for each object, and totals.
    Summary,
    /// A line for each finding.
    Table,
    /// The names of the objects that are denied, as kubectl writes them.
    Name,
}

/// A format, and the file it goes to; stdout without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The format.
    pub format: Format,
    /// The file.
    pub file: Option<PathBuf>,
}

impl Output {
    /// For people, on stdout.
    pub const HUMAN: Self = Self { format: Format::Human, file: None };
}

impl FromStr for Output {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (format, file) = match text.split_once('=') {
            Some((format, file)) => (format, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let format = match format {
            "human" => Format::Human,
            "json" => Format::Json,
            "sarif" => Format::Sarif,
            "junit" => Format::Junit,
            "github" => Format::Github,
            "gitlab" => Format::Gitlab,
            "html" => Format::Html,
            "summary" => Format::Summary,
            "table" => Format::Table,
            "name" => Format::Name,
            _ => {
                return Err(ValueError::Form(
                    "formats are human, summary, table, json, sarif, junit, github, gitlab, html and name",
                ));
            }
        };
        if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
            return Err(ValueError::Form("the file name after = is missing"));
        }
        Ok(Self { format, file })
    }
}

/// Everything counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files looked at.
    pub files: usize,
    /// Objects checked.
    pub objects: usize,
    /// Of them allowed.
    pub allowed: usize,
    /// Of them denied.
    pub denied: usize,
    /// Of them those of which not all is known.
    pub undecided: usize,
    /// Objects that hold no pod.
    pub skipped: usize,
    /// Of them, documents that are no Kubernetes objects.
    pub not_objects: usize,
    /// Documents and files that could not be checked.
    pub errors: usize,
    /// Findings of severity error.
    pub error_findings: usize,
    /// Findings of severity warning.
    pub warning_findings: usize,
    /// Findings that could be fixed mechanically.
    pub fixable: usize,
    /// Of them by safe edits alone.
    pub safely_fixable: usize,
    /// Findings that are suppressed.
    pub suppressed: usize,
    /// Findings of a baseline.
    pub known: usize,
}

impl Totals {
    /// Counts a file.
    pub fn add(&mut self, report: &FileReport) {
        use crate::diagnostic::Severity;
        let allowed = report.verdicts.iter().filter(|verdict| verdict.allowed).count();
        let errors = report.diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
        self.files += report.files;
        self.not_objects += report.not_objects;
        self.objects += report.verdicts.len();
        self.allowed += allowed;
        let undecided = report.verdicts.iter().filter(|verdict| verdict.undecided).count();
        self.denied += report.verdicts.len() - allowed - undecided;
        self.undecided += undecided;
        self.skipped += report.skipped;
        self.errors += report.errors;
        self.error_findings += errors;
        self.warning_findings += report.diagnostics.len() - errors;
        self.fixable += report.diagnostics.iter().filter(|d| d.effect().is_some()).count();
        self.safely_fixable += report
            .diagnostics
            .iter()
            .filter_map(Diagnostic::effect)
            .filter(|effect| effect.is_safe())
            .count();
        self.suppressed += report.suppressed;
        self.known += report.known;
    }
}

/// A file's part of an output.
#[derive(Debug, Default)]
pub struct Fragment {
    verdicts: String,
    findings: String,
}

/// Makes the parts of an output.
#[derive(Debug, Clone)]
pub struct Renderer {
    output: Output,
    judged_at: String,
    style: human::Style,
}

impl Renderer {
    /// `judged_at` names the level; `style` is that of stdout, files are written plainly.
    #[must_use]
    pub fn new(output: Output, judged_at: &str, style: human::Style) -> Self {
        let style = if output.file.is_some() { human::Style::PLAIN } else { style };
        Self { output, judged_at: judged_at.to_owned(), style }
    }

    /// Whether it shows more of a file than the lines of its findings.
    #[must_use]
    pub const fn needs_source(&self) -> bool {
        matches!(self.output.format, Format::Sarif | Format::Html)
    }

    /// The part of one file, whose text is known if it was read as it is reported.
    #[must_use]
    pub fn fragment(&self, report: &FileReport, source: Option<&str>) -> Fragment {
        let mut fragment = Fragment::default();
        match self.output.format {
            Format::Human => human::diagnostics(&report.diagnostics, self.style, &mut fragment.findings),
            Format::Json => {
                palisade_check::json::fragment(report, &mut fragment.verdicts, &mut fragment.findings);
            }
            Format::Sarif => sarif::fragment(report, source, &mut fragment.findings),
            Format::Github => github::fragment(report, &mut fragment.findings),
            Format::Gitlab => gitlab::fragment(report, &mut fragment.findings),
            Format::Html => fragment.findings = html::fragment(report, source),
            Format::Name => {
                for verdict in report.verdicts.iter().filter(|verdict| !verdict.allowed) {
                    fragment.findings.push_str(&kubectl_kind(&verdict.group, &verdict.kind));
                    fragment.findings.push('/');
                    fragment.findings.push_str(verdict.name.as_deref().unwrap_or_default());
                    fragment.findings.push('\n');
                }
            }
            Format::Junit | Format::Summary | Format::Table => {}
        }
        fragment
    }
}

/// Puts the parts together.
#[derive(Debug)]
pub struct Assembly {
    judged_at: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Plain,
    Json { any: bool, findings: String },
    Sarif(sarif::Run),
    Junit(Box<junit::Suites>),
    Gitlab { any: bool },
    Html(html::Report),
    Summary(summary::Summary),
    Table(summary::Table),
}

impl Assembly {
    /// Begins an output.
    pub fn begin(renderer: &Renderer, out: &mut dyn Write) -> io::Result<Self> {
        let state = match renderer.output.format {
            Format::Json => {
                out.write_all(b"{\"objects\":[")?;
                State::Json { any: false, findings: String::new() }
            }
            Format::Sarif => State::Sarif(sarif::Run::default()),
            Format::Junit => State::Junit(Box::default()),
            Format::Gitlab => {
                out.write_all(b"[")?;
                State::Gitlab { any: false }
            }
            Format::Html => State::Html(html::Report::default()),
            Format::Summary => State::Summary(summary::Summary::new(renderer.style)),
            Format::Table => State::Table(summary::Table::new(renderer.style)),
            Format::Human | Format::Github | Format::Name => State::Plain,
        };
        Ok(Self { judged_at: renderer.judged_at.clone(), state })
    }

    /// Adds the part of the next file.
    pub fn push(&mut self, report: &FileReport, fragment: &Fragment, out: &mut dyn Write) -> io::Result<()> {
        match &mut self.state {
            State::Plain => out.write_all(fragment.findings.as_bytes())?,
            State::Json { any, findings } => {
                json::append(&fragment.verdicts, any, out)?;
                if !fragment.findings.is_empty() {
                    if !findings.is_empty() {
                        findings.push(',');
                    }
                    findings.push_str(&fragment.findings);
                }
            }
            State::Sarif(run) => run.push(report, &fragment.findings),
            State::Junit(suites) => suites.push(report),
            State::Gitlab { any } => json::append(&fragment.findings, any, out)?,
            State::Html(page) => page.push(report, &fragment.findings),
            State::Summary(summary) => summary.push(report),
            State::Table(table) => table.push(report),
        }
        Ok(())
    }

    /// Ends the output.
    pub fn finish(self, totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
        match self.state {
            State::Plain => {}
            State::Json { findings, .. } => json::finish(&findings, totals, out)?,
            State::Sarif(run) => run.finish(out)?,
            State::Junit(suites) => suites.finish(out)?,
            State::Gitlab { .. } => out.write_all(b"\n]\n")?,
            State::Html(page) => page.finish(totals, &self.judged_at, out)?,
            State::Summary(summary) => summary.finish(out)?,
            State::Table(table) => table.finish(out)?,
        }
        out.flush()
    }
}

/// All outputs of a command under way.
#[derive(Debug)]
pub struct Sinks {
    open: Vec<(Assembly, Option<BufWriter<File>>)>,
    /// Everything counted so far.
    pub totals: Totals,
    trouble: Option<io::Error>,
}

impl Sinks {
    /// Opens the files. Only one format can go to stdout.
    pub fn open(renderers: &[Renderer], stdout: &mut dyn Write) -> io::Result<Self> {
        let mut open = Vec::with_capacity(renderers.len());
        for renderer in renderers {
            let mut file =
                match &renderer.output.file {
                    Some(path) => Some(File::create(path).map(BufWriter::new).map_err(|error| {
                        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                    })?),
                    None => None,
                };
            let assembly = match &mut file {
                Some(file) => Assembly::begin(renderer, file)?,
                None => Assembly::begin(renderer, stdout)?,
            };
            open.push((assembly, file));
        }
        Ok(Self { open, totals: Totals::default(), trouble: None })
    }

    /// Adds a file. Trouble is kept for the end: the exit status and the other outputs still count.
    pub fn push(&mut self, report: &FileReport, fragments: &[Fragment], stdout: &mut dyn Write) {
        self.totals.add(report);
        for ((assembly, file), fragment) in self.open.iter_mut().zip(fragments) {
            let result = match file {
                Some(file) => assembly.push(report, fragment, file),
                None => assembly.push(report, fragment, stdout),
            };
            if let Err(error) = result {
                self.trouble.get_or_insert(error);
            }
        }
    }

    /// Writes something else to stdout.
    pub fn write(&mut self, text: &str, stdout: &mut dyn Write) {
        if let Err(error) = stdout.write_all(text.as_bytes()) {
            self.trouble.get_or_insert(error);
        }
    }

    /// Flushes stdout.
    pub fn flush(&mut self, stdout: &mut dyn Write) {
        if let Err(error) = stdout.flush() {
            self.trouble.get_or_insert(error);
        }
    }

    /// Ends all outputs.
    pub fn finish(mut self, stdout: &mut dyn Write) -> io::Result<Totals> {
        for (assembly, file) in self.open {
            let result = match file {
                Some(mut file) => assembly.finish(&self.totals, &mut file),
                None => assembly.finish(&self.totals, stdout),
            };
            if let Err(error) = result {
                self.trouble.get_or_insert(error);
            }
        }
        if let Err(error) = stdout.flush() {
            self.trouble.get_or_insert(error);
        }
        self.trouble.map_or(Ok(self.totals), Err)
    }
}
